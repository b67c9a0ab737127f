"""Read a history: the newest rows that a build can use, and older ones that match its question."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from formatters.model import GroupedHistory, Message, Passage, Role, Row
from formatters.rows import read_content, read_role, read_rows
from formatters.turns import group_history, sort_messages
from service.budget.counting import messages_tokens
from service.budget.estimates import HeuristicTokenCounter
from service.budget.groups import has_stable_prefix
from service.budget.strategies.relevance import recalls
from service.build.plan import STORED_CHARS, Plan
from service.config.settings import MemorySettings
from service.ports.stores import HistoryPage, HistoryReader
from service.recall.question import LANGUAGE_PASSAGES
from service.recall.terms import question_terms
from service.wire.request import BuildRequest

#: Rows in the first read for each row to be printed; a turn with tools has several.
ROWS_PER_PRINTED_ROW: Final = 2
#: The factor by which a read grows that was too small.
GROWTH: Final = 4
#: Rows from which on they are processed in a thread, so that the event loop stays free.
MANY_ROWS: Final = 500
#: Limits of the older rows to search for: a constant, or a multiple of the newest rows if that is
#: larger; the number of newest rows reflects the budget. Several times as much as can be recalled
#: is searched: with 600 rows, 2 points less were found at 4,000 tokens.
MAX_HITS: Final = 1_000
HITS_PER_NEWEST_ROW: Final = 3

_ESTIMATE: Final = HeuristicTokenCounter()
_SPEAKERS: Final = frozenset({Role.HUMAN, Role.AI})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The rows that were read, oldest first, and the number of those that were not."""

    messages: tuple[Message, ...] = ()
    #: The messages grouped into turns; None if the build doesn't need them.
    grouped: GroupedHistory | None = None
    #: Rows of the current run, which the context doesn't show as history.
    current: tuple[Message, ...] = ()
    not_read: int = 0
    #: How many of the rows are hits of a search: the oldest, with gaps between them. None without
    #: a search.
    found: int | None = None
    #: Tokens before each row, by its id; only for strategies with a stable window.
    starts: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """Return the number of rows that were read."""
        return len(self.messages) + len(self.current)


async def read_past(request: BuildRequest, plan: Plan, past: Sequence[Row]) -> History:
    """Read the history that a request includes."""
    history = await asyncio.to_thread(_read, request, plan, past, len(past))
    return _with_starts(history, plan, HistoryPage())


async def read_stored(
    request: BuildRequest, plan: Plan, store: HistoryReader, settings: MemorySettings
) -> History:
    """Read the newest rows that the limit of rows and the budget can use.

    For strategies that recall, also read the older rows of a long history that match the input.
    """
    reader = _Reader(request, plan, store, settings)
    return await (reader.read_searched() if recalls(plan.strategy) else reader.read_newest())


@dataclass(frozen=True, slots=True)
class _Reader:
    request: BuildRequest
    plan: Plan
    store: HistoryReader
    settings: MemorySettings

    async def read_newest(self) -> History:
        """Read rows until all that may be printed are there."""
        limit, most = self.plan.memory.limit, self.settings.max_rows
        rows = most if limit is None else min(max(limit, 1) * ROWS_PER_PRINTED_ROW, most)
        while True:
            page = await self._read_page(rows, self.plan.reading_tokens)
            history = await self._to_history(page)
            # one row more than the limit proves that the oldest printed row is complete
            if limit is None or (history.grouped and history.grouped.row_count > limit):
                return history
            if len(page.rows) < rows or rows >= most:
                return history
            rows = min(rows * GROWTH, most)

    async def read_searched(self) -> History:
        """Read a short history completely; of a long one the newest rows and the hits."""
        most = self.settings.max_rows
        page = await self._read_page(most, self.plan.history_tokens)
        if len(page.rows) < page.total <= self.settings.whole_rows:
            page = await self._read_page(most, None)
        remaining = min(page.total, most) - len(page.rows)
        if remaining <= 0 or not page.rows:
            return await self._to_history(page)
        max_hits = max(MAX_HITS, HITS_PER_NEWEST_ROW * len(page.rows))
        return await self._to_history(page, await self._search(page.rows, min(remaining, max_hits)))

    async def _search(self, newest: Sequence[Row], max_hits: int) -> list[Row]:
        """Return older rows that match the question, newest first."""
        terms = question_terms(self.request.current_input, self._last_passages(newest))
        if not terms:
            return []
        hits = await self.store.search(
            self.request.owner_key,
            self.plan.conversation_id,
            terms=terms,
            before=str(newest[-1]["id"]),
            max_rows=max_hits,
        )
        # rows may have been appended since the newest were read
        known = {row["id"] for row in newest}
        return [row for row in hits if row["id"] not in known]

    def _last_passages(self, newest: Sequence[Row]) -> list[Passage]:
        """Return the last things said, oldest first, as the context of the question."""
        passages = [
            Passage(read_content(row["content"])[:STORED_CHARS], read_role(row["role"]))
            for row in newest[: 2 * LANGUAGE_PASSAGES]
            if row["id"] != self.request.input_id
        ]
        said = [passage for passage in passages if passage.speaker in _SPEAKERS]
        return said[:LANGUAGE_PASSAGES][::-1]

    async def _read_page(self, rows: int, tokens: int | None) -> HistoryPage:
        scope = (self.request.owner_key, self.plan.conversation_id)
        return await self.store.recent(*scope, max_rows=rows, max_tokens=tokens)

    async def _to_history(self, page: HistoryPage, hits: Sequence[Row] | None = None) -> History:
        """Return the newest rows and the hits, both given newest first, as a history."""
        rows = [*page.rows, *(hits or ())][::-1]
        found = None if hits is None else len(hits)
        if len(rows) < MANY_ROWS:
            history = _read(self.request, self.plan, rows, page.total)
        else:
            history = await asyncio.to_thread(_read, self.request, self.plan, rows, page.total)
        return _with_starts(replace(history, found=found), self.plan, page)


def _read(request: BuildRequest, plan: Plan, rows: Sequence[Row], total: int) -> History:
    """Read rows, oldest first, and separate those of the current run.

    A row that is also a message of the request's run counts as that message, not as history.
    """
    messages: list[Message] = []
    current: list[Message] = []
    run_id, input_id = request.run_id, request.input_id
    in_run = {row["id"] for row in request.run_rows}
    for message in read_rows(rows):
        if message.id not in in_run:
            is_current = message.run_id == run_id or message.id == input_id
            (current if is_current else messages).append(message)
    needs_turns = plan.layout == "tagged" or plan.memory.limit is not None or recalls(plan.strategy)
    return History(
        messages=tuple(messages),
        grouped=group_history(messages) if needs_turns else None,
        current=tuple(current),
        not_read=max(total - len(rows), 0),
    )


def _with_starts(history: History, plan: Plan, page: HistoryPage) -> History:
    """Return the history with the tokens before each row, if the strategy needs them.

    A store knows them for the rows of its page; otherwise they are estimated, from the first row.
    """
    if not has_stable_prefix(plan.strategy):
        return history
    known = page.native_starts if plan.layout == "chat" else page.starts
    starts = dict(zip((str(row["id"]) for row in page.rows), known, strict=False))
    return replace(history, starts=starts or _estimate_starts(history.messages, plan.layout))


def _estimate_starts(messages: Sequence[Message], layout: str) -> dict[str, int]:
    starts: dict[str, int] = {}
    tokens = 0
    for message in sort_messages(messages):
        starts[message.id] = tokens
        tokens += _ESTIMATES[layout](message)
    return starts


def _native_tokens(message: Message) -> int:
    return messages_tokens([message], _ESTIMATE.count)


def _printed_tokens(message: Message) -> int:
    return 0 if message.role is Role.TOOL else _ESTIMATE.count(message.content[:STORED_CHARS])


_ESTIMATES: Final[Mapping[str, Callable[[Message], int]]] = {
    "chat": _native_tokens,
    "tagged": _printed_tokens,
}
