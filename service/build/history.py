"""Read a history: as much of it as a build can use, and of a long one what its question needs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from formatters.model import Message, Passage, Role, Row
from formatters.rows import read_content, read_role, read_rows
from formatters.turns import count_rows, sort_messages
from service.budget.counting import messages_tokens
from service.budget.estimates import HeuristicTokenCounter
from service.budget.groups import has_stable_prefix, recalls
from service.build.plan import STORED_CHARS, Plan
from service.config.settings import MemorySettings
from service.ports.stores import HistoryPage, HistoryStore
from service.recall.question import LANGUAGE_PASSAGES
from service.recall.terms import question_terms
from service.wire.request import BuildRequest

#: What rows are measured by that no store has counted.
_ESTIMATE: Final = HeuristicTokenCounter()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The rows that were read, oldest first, and how many were not."""

    messages: tuple[Message, ...] = ()
    #: Rows of the run that is being built; the context does not show them as history.
    current: tuple[Message, ...] = ()
    not_read: int = 0
    #: How many of the rows that were read a search has found: the oldest, and others are missing
    #: among them. None where there was no search.
    found: int | None = None
    #: Tokens of all that stand before a row, by its id, where the strategy goes by them.
    starts: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """Return how many messages were read."""
        return len(self.messages) + len(self.current)

    def placed(self, plan: Plan, page: HistoryPage) -> "History":
        """Return it with the tokens before each row, if the strategy goes by them.

        They are those that a store tells of the rows of ``page``, as the layout shows these;
        without any they are estimated, from the first row that there is.
        """
        if not has_stable_prefix(plan.strategy):
            return self
        told = page.native_starts if plan.layout == "chat" else page.starts
        ids = (str(row["id"]) for row in page.rows)
        known = dict(zip(ids, told, strict=False))
        return replace(self, starts=known or _estimated(sort_messages(self.messages), plan.layout))


def _estimated(messages: Sequence[Message], layout: str) -> dict[str, int]:
    starts: dict[str, int] = {}
    tokens = 0
    for message in messages:
        starts[message.id] = tokens
        tokens += _SIZES[layout](message)
    return starts


def _native(message: Message) -> int:
    return messages_tokens([message], _ESTIMATE.count)


def _printed(message: Message) -> int:
    return 0 if message.role is Role.TOOL else _ESTIMATE.count(message.content[:STORED_CHARS])


#: What a row takes by layout.
_SIZES: Final[Mapping[str, Callable[[Message], int]]] = {"chat": _native, "tagged": _printed}

#: Rows read at first for each row that is to be printed; a turn with tools takes several.
ROWS_A_PRINTED_ROW: Final = 2
#: Rows from which on work on each of them is done in a thread, so that the event loop stays free.
MANY_ROWS: Final = 500
#: By how much a read that turned out too small grows.
GROWTH: Final = 4
#: Older rows that are searched for at most: so many, or for each of the newest, where that is more,
#: and of these there are as many as the budget can hold. What is recalled is chosen from several
#: times as much, and from as many rows as where a history is read whole: with 600, 2 points less
#: were found at 4,000 tokens.
FOUND, FOUND_A_ROW = 1_000, 3

_SAID: Final = frozenset({Role.HUMAN, Role.AI})


async def read_past(request: BuildRequest, plan: Plan, past: Sequence[Row]) -> History:
    """Read the history that a request brought along."""
    history = await asyncio.to_thread(_read, request, past, len(past))
    return history.placed(plan, HistoryPage())


async def read_stored(
    request: BuildRequest, plan: Plan, store: HistoryStore, limits: MemorySettings
) -> History:
    """Read the newest rows: as many as the limit of rows and the budget can use, and no more.

    Where rows of older turns are recalled, of a long history also those that the question needs.
    """
    history = _Stored(request, plan, store, limits)
    return await (history.searched() if recalls(plan.strategy) else history.newest())


@dataclass(frozen=True, slots=True)
class _Stored:
    request: BuildRequest
    plan: Plan
    store: HistoryStore
    limits: MemorySettings

    async def newest(self) -> History:
        """Read until the rows that may be printed are there."""
        limit, most = self.plan.memory.limit, self.limits.max_rows
        rows = most if limit is None else min(max(limit, 1) * ROWS_A_PRINTED_ROW, most)
        while True:
            page = await self._page(rows, self.plan.reading_tokens)
            history = await self._history(page)
            # one row more than the limit shows that the oldest row shown is whole
            if limit is None or count_rows(history.messages) > limit:
                return history
            if len(page.rows) < rows or rows >= most:
                return history
            rows = min(rows * GROWTH, most)

    async def searched(self) -> History:
        """Read a history that is short whole; of a long one the newest rows and what is found."""
        most = self.limits.max_rows
        page = await self._page(most, self.plan.history_tokens)
        if len(page.rows) < page.total <= self.limits.whole_rows:
            page = await self._page(most, None)
        left = min(page.total, most) - len(page.rows)
        if left <= 0 or not page.rows:
            return await self._history(page)
        found = await self._found(page.rows, min(left, max(FOUND, FOUND_A_ROW * len(page.rows))))
        return await self._history(page, found)

    async def _found(self, newest: Sequence[Row], most: int) -> list[Row]:
        """Return older rows that tell about the question, newest first."""
        terms = question_terms(self.request.current_input, self._passages(newest))
        if not terms:
            return []
        found = await self.store.search(
            self.request.owner_key,
            self.plan.conversation_id,
            terms=terms,
            before=str(newest[-1]["id"]),
            max_rows=most,
        )
        # a row may have come in between
        known = {row["id"] for row in newest}
        return [row for row in found if row["id"] not in known]

    def _passages(self, newest: Sequence[Row]) -> list[Passage]:
        """Return what was said last, oldest first, as far as a question is read with it."""
        told = [
            Passage(read_content(row["content"])[:STORED_CHARS], read_role(row["role"]))
            for row in newest[: 2 * LANGUAGE_PASSAGES]
            if row["id"] != self.request.input_id
        ]
        return [passage for passage in told if passage.speaker in _SAID][:LANGUAGE_PASSAGES][::-1]

    async def _page(self, rows: int, tokens: int | None) -> HistoryPage:
        scope = (self.request.owner_key, self.plan.conversation_id)
        return await self.store.recent(*scope, max_rows=rows, max_tokens=tokens)

    async def _history(self, page: HistoryPage, found: Sequence[Row] | None = None) -> History:
        """Read the newest rows, and older ones that were found; both are given newest first."""
        rows = [*page.rows, *(found or ())][::-1]
        of_found = None if found is None else len(found)
        if len(rows) < MANY_ROWS:
            history = _read(self.request, rows, page.total, of_found)
        else:
            history = await asyncio.to_thread(_read, self.request, rows, page.total, of_found)
        return history.placed(self.plan, page)


def _read(
    request: BuildRequest, rows: Sequence[Row], total: int, found: int | None = None
) -> History:
    """Read rows given oldest first, and set apart what belongs to the current run.

    A row that the request brings along as a message of its run is that message, not history.
    """
    messages: list[Message] = []
    current: list[Message] = []
    run_id, input_id = request.run_id, request.input_id
    in_flight = {row["id"] for row in request.run_rows}
    for message in read_rows(rows):
        if message.id in in_flight:
            continue
        mine = message.run_id == run_id or message.id == input_id
        (current if mine else messages).append(message)
    return History(
        messages=tuple(messages),
        current=tuple(current),
        not_read=max(total - len(rows), 0),
        found=found,
    )
