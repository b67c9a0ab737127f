"""Tells of rows that fall out of their owner's context, each once, when the answer is out."""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from formatters.model import Tag
from service.aio import LARGE_TEXT
from service.budget.decisions import PRESENT
from service.build.after_answer import BuildQueue, Losses
from service.build.report import HISTORY_BLOCKS, Built
from service.config.settings import EventSettings
from service.errors import BusError, StoreError
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Bus
from service.ports.services import Tokenizers
from service.ports.stores import Archiving, HistoryStore
from service.wire.events import UNCAUSED, Event, EventMetadata, Events, Pruned
from service.wire.protocol import Topics

log = structlog.get_logger()


class BusEvents:
    """The `Events` that go to the channels of a bus; what goes wrong is logged and nothing else."""

    def __init__(self, bus: Bus, metrics: Metrics = UNMEASURED) -> None:
        self._bus = bus
        self._metrics = metrics

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,
        run_id: str | None,
        cause: EventMetadata = UNCAUSED,
    ) -> None:
        """Tell what happened on a topic's channel."""
        event = Event[Mapping[str, object]](
            id=f"msg_{uuid.uuid4().hex}",
            run_id=run_id,
            owner_key=owner_key,
            timestamp=self._bus.now(),
            content=content,
            metadata=cause,
        )
        try:
            await self._bus.publish(topic, event.model_dump_json().encode())
        except (BusError, ValueError) as error:  # a value that is no JSON is a ValueError
            self._metrics.event_lost()
            log.warning("event.lost", topic=topic, error=str(error))


#: Histories of which it is known what fell out last, so that the store isn't asked again.
REMEMBERED: Final = 1_000
#: Ids of rows in these, of some 150 bytes each: a long history leaves out thousands.
REMEMBERED_IDS: Final = 100_000
#: Outcomes of rows that are out of the context; what is filtered never was part of it.
_OUT: Final = frozenset({"dropped", "summarized"})


class Departures:
    """Marks rows as fallen out, archives and tells of them; what goes wrong is only logged."""

    def __init__(
        self, history: HistoryStore, events: Events, tokenizers: Tokenizers, settings: EventSettings
    ) -> None:
        self._history = history
        self._events = events
        self._tokenizers = tokenizers
        self._settings = settings
        self._losses = Losses(_lose, _resume)
        #: Looks at builds in the background.
        self.queue = BuildQueue(self._tell_all, self._is_wanted, self._losses, batch=1)
        self._known: OrderedDict[tuple[str, str | None], frozenset[str]] = OrderedDict()
        self._ids = 0

    def _is_wanted(self, built: Built) -> bool:
        # what was left out is counted anyway: a build that left nothing out costs nothing here
        if not built.content.dropped or not (self._settings.pruned or self._settings.archive):
            return False
        # most builds leave out what the one before them did, and needn't wait to be told so
        return not self._knows(built, left_out(built))

    async def _tell_all(self, builds: Sequence[Built]) -> None:
        for built in builds:
            await self.tell(built)

    async def tell(self, built: Built) -> None:
        """Mark the rows that a build left out, and tell of those that are new among them."""
        reasons = left_out(built)
        if self._knows(built, reasons):  # meanwhile, by one that waited before it
            return
        try:
            new = await self._history.flag_fallen(
                built.request.owner_key, list(reasons), archiving=self._archiving(built, reasons)
            )
            if new and self._settings.pruned:
                await self._publish(built, new)
        except StoreError as error:
            self._losses.add([built], str(error))
            return
        self.queue.succeeded()
        self._remember(_history(built), frozenset(reasons))

    def _knows(self, built: Built, reasons: Mapping[str, str]) -> bool:
        return reasons.keys() <= self._known.get(_history(built), frozenset())

    def _archiving(self, built: Built, reasons: Mapping[str, str]) -> Archiving | None:
        if not self._settings.archive:
            return None
        return Archiving(
            reasons=reasons,
            run_id=built.request.run_id,
            build_id=built.content.build_id,
            retention=timedelta(days=self._settings.retention_days),
        )

    async def _publish(self, built: Built, new: Sequence[str]) -> None:
        request, kept = built.request, _kept(built)
        rows = await self._history.rows(request.owner_key, new) if self._settings.content else None
        pruned = Pruned(
            original=kept + len(new),
            final=kept,
            removed=len(new),
            removed_messages=list(new),
            token_reduction=await self._tokens(built, new),
            run_id=request.run_id,
            rows=None if rows is None else [dict(row) for row in rows],
        )
        await self._events.publish(
            Topics.CONTEXT_PRUNED,
            pruned.model_dump(),
            owner_key=request.owner_key,
            run_id=request.run_id,
            cause=built.cause,
        )

    async def _tokens(self, built: Built, names: Sequence[str]) -> int:
        wanted = set(names)
        gone = [message for message in built.gathered.history.messages if message.id in wanted]
        count = self._tokenizers.counter(built.plan.tokenizer).count

        def total() -> int:
            return sum(count(message.content) for message in gone)

        small = sum(len(message.content) for message in gone) < LARGE_TEXT
        return total() if small else await asyncio.to_thread(total)

    def _remember(self, history: tuple[str, str | None], out: frozenset[str]) -> None:
        self._ids += len(out) - len(self._known.pop(history, ()))
        self._known[history] = out
        while len(self._known) > REMEMBERED or self._ids > REMEMBERED_IDS:
            _, forgotten = self._known.popitem(last=False)
            self._ids -= len(forgotten)


def left_out(built: Built) -> dict[str, str]:
    """Return the rows of the store that a build left out, oldest first, each with its reason.

    Rows that a request brought along are nobody's history here, and rows that were not read were
    left out by an earlier build.
    """
    if built.request.options.past is not None:
        return {}
    block = HISTORY_BLOCKS[built.plan.layout]
    reasons = {
        name: decision.reason
        for decision in built.fitted.decisions
        if decision.block == block and decision.outcome in _OUT
        for name in decision.message_ids
    }
    read = built.gathered.history.messages
    return {message.id: reasons[message.id] for message in read if message.id in reasons}


def _history(built: Built) -> tuple[str, str | None]:
    return (built.request.owner_key, built.plan.conversation_id)


def _kept(built: Built) -> int:
    blocks = (HISTORY_BLOCKS[built.plan.layout], Tag.RECALLED)
    return sum(
        len(decision.message_ids)
        for decision in built.fitted.decisions
        if decision.block in blocks and decision.outcome in PRESENT
    )


def _lose(built: Built, reason: str) -> None:
    log.warning("departures.lost", build_id=built.content.build_id, reason=reason)


def _resume(lost: int) -> None:
    log.info("departures.resumed", lost=lost)
