"""Publish events on the bus, among them `context.pruned`, once for each row left out."""

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
from service.build.account import HISTORY_BLOCKS, Built
from service.build.after_answer import BuildQueue, Losses
from service.config.settings import EventSettings
from service.errors import BusError, StoreError
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Bus
from service.ports.services import Tokenizers
from service.ports.stores import Archiving, HistoryStore
from service.wire.events import NO_CAUSE, Event, EventMetadata, Events, Pruned
from service.wire.protocol import Topics

log = structlog.get_logger(__name__)


class EventPublisher:
    """Publishes events on the channels of a bus; failures are only logged."""

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
        cause: EventMetadata = NO_CAUSE,
    ) -> None:
        """Publish an event on the channel of a topic."""
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
        except (BusError, ValueError) as error:  # ValueError: the content isn't JSON
            self._metrics.count_lost_event()
            log.warning("event.lost", topic=topic, error=str(error))


#: Limits of the cache of rows that were left out: histories, and row ids in all of them (about 150
#: bytes each; a build of a long history leaves out thousands).
MAX_HISTORIES: Final = 1_000
MAX_IDS: Final = 100_000
#: Outcomes of rows that are left out; a filtered row was never a candidate.
_LEFT_OUT: Final = frozenset({"dropped", "summarized"})


class PrunedRows:
    """Flags, archives and publishes rows when a context leaves them out for the first time.

    Failures are only logged.
    """

    def __init__(
        self, history: HistoryStore, events: Events, tokenizers: Tokenizers, settings: EventSettings
    ) -> None:
        self._history = history
        self._events = events
        self._tokenizers = tokenizers
        self._settings = settings
        self._losses = Losses(_log_loss, _log_recovery)
        #: Builds to examine in the background.
        self.queue = BuildQueue(self._publish_all, self._is_wanted, self._losses, batch=1)
        self._known: OrderedDict[tuple[str, str | None], frozenset[str]] = OrderedDict()
        self._ids = 0

    def _is_wanted(self, built: Built) -> bool:
        # the number of dropped rows is known, so that a build without any costs nothing here
        if not built.content.dropped or not (self._settings.pruned or self._settings.archive):
            return False
        # most builds leave out the same rows as the one before
        return not self._is_known(built, left_out(built))

    async def _publish_all(self, builds: Sequence[Built]) -> None:
        for built in builds:
            await self.publish(built)

    async def publish(self, built: Built) -> None:
        """Flag the rows that a build left out, and publish those that are new."""
        reasons = left_out(built)
        if self._is_known(built, reasons):  # by a build that was queued before it
            return
        try:
            new = await self._history.flag_fallen(
                built.request.owner_key, list(reasons), archiving=self._archiving(built, reasons)
            )
            if new and self._settings.pruned:
                await self._publish_event(built, new)
        except StoreError as error:
            self._losses.add([built], str(error))
            return
        self.queue.succeeded()
        self._remember(_history_key(built), frozenset(reasons))

    def _is_known(self, built: Built, reasons: Mapping[str, str]) -> bool:
        return reasons.keys() <= self._known.get(_history_key(built), frozenset())

    def _archiving(self, built: Built, reasons: Mapping[str, str]) -> Archiving | None:
        if not self._settings.archive:
            return None
        return Archiving(
            reasons=reasons,
            run_id=built.request.run_id,
            build_id=built.content.build_id,
            retention=timedelta(days=self._settings.retention_days),
        )

    async def _publish_event(self, built: Built, new: Sequence[str]) -> None:
        request, kept = built.request, _kept_rows(built)
        rows = await self._history.rows(request.owner_key, new) if self._settings.content else None
        pruned = Pruned(
            original=kept + len(new),
            final=kept,
            removed=len(new),
            removed_messages=list(new),
            token_reduction=await self._count_tokens(built, new),
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

    async def _count_tokens(self, built: Built, ids: Sequence[str]) -> int:
        wanted = set(ids)
        pruned = [message for message in built.gathered.history.messages if message.id in wanted]
        count = self._tokenizers.counter(built.plan.tokenizer).count

        def total() -> int:
            return sum(count(message.content) for message in pruned)

        small = sum(len(message.content) for message in pruned) < LARGE_TEXT
        return total() if small else await asyncio.to_thread(total)

    def _remember(self, history: tuple[str, str | None], ids: frozenset[str]) -> None:
        self._ids += len(ids) - len(self._known.pop(history, ()))
        self._known[history] = ids
        while len(self._known) > MAX_HISTORIES or self._ids > MAX_IDS:
            _, evicted = self._known.popitem(last=False)
            self._ids -= len(evicted)


def left_out(built: Built) -> dict[str, str]:
    """Return the stored rows that a build left out, oldest first, each with its reason.

    Rows that the request included aren't stored, and rows that were not read were left out by an
    earlier build.
    """
    if built.request.options.past is not None:
        return {}
    block = HISTORY_BLOCKS[built.plan.layout]
    reasons = {
        row_id: decision.reason
        for decision in built.fitted.decisions
        if decision.block == block and decision.outcome in _LEFT_OUT
        for row_id in decision.message_ids
    }
    read = built.gathered.history.messages
    return {message.id: reasons[message.id] for message in read if message.id in reasons}


def _history_key(built: Built) -> tuple[str, str | None]:
    return (built.request.owner_key, built.plan.conversation_id)


def _kept_rows(built: Built) -> int:
    blocks = (HISTORY_BLOCKS[built.plan.layout], Tag.RECALLED)
    return sum(
        len(decision.message_ids)
        for decision in built.fitted.decisions
        if decision.block in blocks and decision.outcome in PRESENT
    )


def _log_loss(built: Built, reason: str) -> None:
    log.warning("pruned.lost", build_id=built.content.build_id, reason=reason)


def _log_recovery(lost: int) -> None:
    log.info("pruned.resumed", lost=lost)
