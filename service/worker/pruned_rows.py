"""Flag and archive rows that contexts leave out, and publish events once for each."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
from cachetools import LRUCache
from pydantic import BaseModel

from formatters.model import Tag
from service.budget.decisions import PRESENT, tally
from service.build.account import HISTORY_BLOCKS, Built
from service.build.after_answer import BuildQueue
from service.config.settings import EventSettings
from service.errors import StoreError
from service.ports.services import Tokenizers
from service.ports.stores import Archiving, HistoryStore
from service.wire.events import Events, Pruned, Summarized
from service.wire.protocol import Topics

log = structlog.get_logger(__name__)

#: Limit of the ids of rows that are known to be left out (about 150 bytes each; a build of a long
#: history leaves out thousands), and the ids that a history counts for besides its own.
MAX_IDS: Final = 100_000
IDS_PER_HISTORY: Final = 100
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
        #: Builds to examine in the background.
        self.queue = BuildQueue(
            lambda builds: self.publish(*builds), self._is_wanted, _log_loss, _log_recovery, batch=1
        )
        #: By history, the rows that are known to be left out.
        self._known: LRUCache[tuple[str, str | None], frozenset[str]] = LRUCache(
            MAX_IDS, getsizeof=lambda ids: IDS_PER_HISTORY + len(ids)
        )

    def _is_wanted(self, built: Built) -> bool:
        # the numbers of rows are known, so that a build that leaves out none costs nothing here
        has_any = any(getattr(built.content, outcome) for outcome in _LEFT_OUT)
        if not has_any or not (self._settings.pruned or self._settings.archive):
            return False
        # most builds leave out the same rows as the one before
        return not self._is_known(built, left_out(built))

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
            self.queue.lose([built], str(error))
            return
        self.queue.succeeded()
        with suppress(ValueError):  # they are too many to remember
            self._known[_history_key(built)] = frozenset(reasons)

    def _is_known(self, built: Built, reasons: Mapping[str, str]) -> bool:
        return reasons.keys() <= self._known.get(_history_key(built), frozenset())

    def _archiving(self, built: Built, reasons: Mapping[str, str]) -> Archiving | None:
        if not self._settings.archive:
            return None
        build_id = built.content.build_id
        return Archiving(reasons=reasons, run_id=built.request.run_id, build_id=build_id)

    async def _publish_event(self, built: Built, new: Sequence[str]) -> None:
        request, blocks = built.request, (HISTORY_BLOCKS[built.plan.layout], Tag.RECALLED)
        counts = tally(each for each in built.fitted.decisions if each.block in blocks)
        kept = sum(counts[outcome] for outcome in PRESENT - {"annotated"})
        rows = await self._history.rows(request.owner_key, new) if self._settings.content else None
        pruned = Pruned(
            original=kept + len(new),
            final=kept,
            annotated=counts["annotated"],
            removed=len(new),
            removed_messages=list(new),
            token_reduction=await self._count_tokens(built, new),
            run_id=request.run_id,
            rows=None if rows is None else [dict(row) for row in rows],
        )
        contents: dict[str, BaseModel] = {Topics.CONTEXT_PRUNED: pruned}
        if summarized := _counted(built, kept):
            contents[Topics.CONTEXT_SUMMARIZED] = summarized
        for topic, content in contents.items():
            await self._events.publish(
                topic,
                content.model_dump(mode="json"),
                owner_key=request.owner_key,
                run_id=request.run_id,
                cause=built.cause,
            )

    async def _count_tokens(self, built: Built, ids: Sequence[str]) -> int:
        wanted = set(ids)
        pruned = [message for message in built.gathered.history.messages if message.id in wanted]
        count = self._tokenizers.counter(built.plan.tokenizer).count
        return await asyncio.to_thread(lambda: sum(count(message.content) for message in pruned))


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


def _counted(built: Built, kept: int) -> Summarized | None:
    """Return the event of rows that a build replaces with a sentence that counts them."""
    counted = built.fitted.history and built.fitted.history.counted
    if not counted:
        return None
    sentence, rows = counted
    return Summarized(
        summarized=len(rows),
        kept=kept,
        summary=sentence,
        message_ids=[row.id for row in rows],
        first=rows[0].timestamp,
        last=rows[-1].timestamp,
        generation=1,
        run_id=built.request.run_id,
    )


def _history_key(built: Built) -> tuple[str, str | None]:
    return (built.request.owner_key, built.plan.conversation_id)


def _log_loss(built: Built, reason: str) -> None:
    log.warning("pruned.lost", build_id=built.content.build_id, reason=reason)


def _log_recovery(lost: int) -> None:
    log.info("pruned.resumed", lost=lost)
