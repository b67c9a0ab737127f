"""Read the history that a build can use: its newest rows, and those that match the question."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from cachetools import LRUCache

from formatters.model import GroupedHistory, Message, Passage, Role, Row
from formatters.rows import group_history, sort_messages
from service.budget.counting import messages_tokens
from service.budget.estimates import HeuristicTokenCounter
from service.budget.strategies.relevance import Relevance
from service.build.plan import Plan
from service.build.row_cache import RowCache
from service.build.similarity import EmbeddedQuestion
from service.config.settings import MemorySettings
from service.ports.stores import STORED_CHARS, HistoryPage, HistoryStore, Scope, SearchRequest
from service.recall.dates import find_spans
from service.recall.question import LANGUAGE_PASSAGES, question_terms, shorten_question
from service.wire.request import BuildRequest

#: Rows in the first read for each row to be printed; a turn with tools has several.
ROWS_PER_PRINTED_ROW: Final = 2
#: The percentage of their estimated tokens that is read for the rows of a run: more than all of
#: them, so that a second read is rare.
RUN_ESTIMATE_PERCENT: Final = 125
#: The factor that enlarges a read that was too small.
GROWTH: Final = 4
#: The number of new rows that is processed in a thread, so that the event loop stays free; one that
#: was read before takes a tenth of the time.
MANY_ROWS: Final = 500
#: Limits of the older rows to search for: a constant, or a multiple of the newest rows if that is
#: larger; the number of newest rows reflects the budget. Several times as much as can be recalled
#: is searched.
SEARCHED_ROWS: Final = 400
SEARCHED_PER_NEWEST_ROW: Final = 2
#: The part of the tokens for history whose newest rows compete with the hits of a search, whatever
#: they say; of the others only hits do: bench/recall/README.md.
NEWEST_PART: Final = 4

#: The most histories that are known to be short.
MAX_SHORT: Final = 10_000

_ESTIMATE: Final = HeuristicTokenCounter()
#: The roles of those who talk.
SPEAKERS: Final = frozenset({Role.HUMAN, Role.AI})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The rows that were read, oldest first, and the number of those that were not."""

    messages: tuple[Message, ...] = ()
    #: The messages grouped into turns; None if the build doesn't need them.
    grouped: GroupedHistory | None = None
    #: Rows of the current run, which the context doesn't show as history.
    current: tuple[Message, ...] = ()
    #: Older rows of the history; rows of the run in the request are no history.
    not_read: int = 0
    #: Messages of the request's run that may be stored, but are not among the rows that were read.
    run_not_read: frozenset[str] = frozenset()
    #: How many of the messages were found by a search: the oldest, with gaps between them. None
    #: without a search.
    found: int | None = None
    #: Tokens before each row, by its id; only for strategies with a stable window.
    starts: Mapping[str, int] = field(default_factory=dict)
    #: How similar rows are to the input, by id, and how many of the rows that may be recalled have
    #: no vector yet; None if rows aren't compared.
    similarities: Mapping[str, float] = field(default_factory=dict)
    without_vector: int | None = None
    #: Whether the store failed.
    failed: bool = False

    @property
    def read(self) -> int:
        """Return the number of rows that were read."""
        return len(self.messages) + len(self.current)


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the newest rows that a build can use, and older ones that match its question."""

    request: BuildRequest
    plan: Plan
    store: HistoryStore
    cache: RowCache
    #: Histories that were read whole last time, as they were short.
    short: LRUCache[Scope, bool]
    settings: MemorySettings
    #: With its vector, if rows are compared with it.
    question: EmbeddedQuestion | None = None

    async def read_past(self, past: Sequence[Row]) -> History:
        """Read the history that a request includes, oldest first."""
        return await self._to_history(HistoryPage(rows=past[::-1], total=len(past)))

    async def read_stored(self) -> History:
        """Read the newest rows that the limit of rows and the budget can use.

        For strategies that recall, also read the older rows of a long history that match the
        input.
        """
        history = await (
            self._read_searched() if self.plan.strategy.recalls else self._read_newest()
        )
        return await self._without_run(history)

    async def _without_run(self, history: History) -> History:
        """Return a history whose ``not_read`` doesn't count messages of the request's run.

        The store is asked which of them it has, but rarely: what is stored of a run are mostly the
        newest rows, which were read.
        """
        if not (history.not_read and history.run_not_read):
            return history
        rows = await self.store.rows(
            self.request.owner_key, sorted(history.run_not_read), pruned=False
        )
        scopes = [row.get("conversation_id") for row in rows]
        stored = sum(self.plan.conversation_id in (None, scope) for scope in scopes)
        return replace(history, not_read=max(history.not_read - stored, 0))

    async def _read_newest(self) -> History:
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

    async def _read_searched(self) -> History:
        """Read a short history completely; of a long one the newest rows and the hits."""
        most, whole = self.settings.max_rows, self.settings.whole_rows
        scope = Scope(self.request.owner_key, self.plan.conversation_id)
        if self.short.get(scope):
            newest = await self._read_page(min(whole, most), None)
            if newest.total <= whole:
                return await self._to_history(newest)
            self.short.pop(scope, None)  # another build may have been here first
        newest, usual = await self._read_newest_part(most)
        if newest.total <= whole:
            self.short[scope] = True
            if len(newest.rows) < newest.total:
                newest = await self._read_page(most, None)
        rows = min(newest.total, most)
        if rows <= len(newest.rows) or not newest.rows:
            return await self._to_history(newest)
        max_rows = max(SEARCHED_ROWS, SEARCHED_PER_NEWEST_ROW * usual)
        hits = await self._search(newest.rows, min(rows - len(newest.rows), max_rows))
        if len(newest.rows) < usual and len(hits) < usual // 2:  # there is room for the others
            newest = await self._read_page(most, self.plan.history_tokens)
        return await self._to_history(newest, hits)

    async def _read_newest_part(self, most: int) -> tuple[HistoryPage, int]:
        """Read the newest rows that compete with hits; return about how many the budget can hold.

        They have the whole newest turn. If the budget may hold all rows, they are all that it can.
        """
        strategy, tokens = self.plan.strategy, self.plan.history_tokens
        if tokens is not None and not (isinstance(strategy, Relevance) and strategy.recent_share):
            part = await self._read_page(most, tokens // NEWEST_PART)
            usual = NEWEST_PART * len(part.rows)
            before = part.starts[-1] if part.starts else 0
            is_long = before > tokens - tokens // NEWEST_PART and usual < min(part.total, most)
            if part.total <= self.settings.whole_rows or (is_long and self._has_turn(part)):
                return part, usual
        page = await self._read_page(most, tokens)
        return page, len(page.rows)

    def _has_turn(self, page: HistoryPage) -> bool:
        """Return whether a page has the whole newest turn before the run."""
        run = self.request.run_id
        return any(m.role is Role.HUMAN and m.run_id != run for m in self.cache.read(page.rows))

    async def _search(self, newest: Sequence[Row], max_rows: int) -> Sequence[Row]:
        """Return older rows that match the question, newest first."""
        terms = question_terms(self.request.current_input, self._last_passages(newest))
        spans = find_spans(shorten_question(self.request.current_input), self.plan.now)
        conversation, question = self.plan.conversation_id, self.question
        similar = await question.nearest(conversation, max_rows) if question else ()
        if not (terms or similar or spans):
            return ()
        (oldest,) = newest[-1:]  # the only one that is parsed
        request = SearchRequest(terms, str(oldest["id"]), max_rows, similar, spans)
        return await self.store.search(self.request.owner_key, conversation, request)

    def _last_passages(self, newest: Sequence[Row]) -> list[Passage]:
        """Return the last things said, oldest first, as the context of the question."""
        said = (
            Passage(message.content[:STORED_CHARS], message.role)
            for message in self.cache.read(newest[: 2 * LANGUAGE_PASSAGES])
            if message.role in SPEAKERS and message.id != self.request.input_id
        )
        return [*islice(said, LANGUAGE_PASSAGES)][::-1]

    async def _read_page(self, rows: int, tokens: int | None) -> HistoryPage:
        """Read the newest rows with ``tokens``, besides those of the run, which are no history."""
        scope = (self.request.owner_key, self.plan.conversation_id)
        if tokens is None:
            return await self.store.recent(*scope, max_rows=rows)
        said = (str(message.content)[:STORED_CHARS] for message in self.request.run.history[1:])
        of_run = sum(map(_ESTIMATE.count, said)) * RUN_ESTIMATE_PERCENT // 100
        while True:
            page = await self.store.recent(*scope, max_rows=rows, max_tokens=tokens + of_run)
            read = 0 if len(page.rows) >= min(rows, page.total) else self._run_tokens(page)
            if read <= of_run:
                return page
            of_run = read

    def _run_tokens(self, page: HistoryPage) -> int:
        """Return the tokens of a page's rows that belong to the run."""
        request, starts = self.request, page.starts
        ids = {request.input_id, *[message.id for message in request.run.history]}
        tokens = 0
        for index, message in enumerate(self.cache.read(page.rows[::-1])[::-1]):
            if message.run_id == request.run_id or message.id in ids:
                is_known = index and starts
                text = message.content[:STORED_CHARS]
                tokens += starts[index - 1] - starts[index] if is_known else _ESTIMATE.count(text)
        return tokens

    async def _to_history(self, page: HistoryPage, hits: Sequence[Row] | None = None) -> History:
        """Return the newest rows and the hits, both given newest first, as a history."""
        parts = (page.rows, hits or ())
        rows = sum(map(len, parts))
        # of few rows it doesn't matter which are new
        if rows < MANY_ROWS or rows // 10 + sum(map(self.cache.count_new, parts)) < MANY_ROWS:
            return self._convert(page, hits)
        return await asyncio.to_thread(self._convert, page, hits)

    def _convert(self, page: HistoryPage, hits: Sequence[Row] | None) -> History:
        """Read rows, and separate those of the current run.

        A row that is also a message of the request's run counts as that message, not as history.
        """
        plan, request = self.plan, self.request
        newest = self.cache.read(page.rows[::-1])
        # rows may have been appended since the newest were read
        known = {message.id for message in newest} if hits else ()
        found = [m for m in self.cache.read((hits or ())[::-1]) if m.id not in known]
        # with all newest rows, the oldest hits give way
        found = found[max(len(newest) + len(found) - self.settings.max_rows, 0) :]
        read = (*found, *newest)
        in_run = {row["id"] for row in request.run_rows}
        inputs, runs = {request.input_id}, {request.run_id}
        if former := request.former_ids:  # a retry of a request that an older version recorded
            former_input = (*former, request.current_input)
            same_id = [m for m in read if m.id == former[0]]
            if former_input in [(m.id, m.run_id, m.content) for m in same_id]:
                inputs.add(former[0])
                runs.add(former[1])
        current = tuple([m for m in read if m.run_id in runs or m.id in inputs])
        elsewhere = in_run | {message.id for message in current}
        messages = tuple(m for m in read if m.id not in elsewhere) if elsewhere else read
        current = tuple(m for m in current if m.id not in in_run)
        # of the first request of a run nothing is stored, and no message without an id of its own
        own = {str(message.id) for message in request.run.history[1:] if message.id}
        run_not_read = {request.input_id, *own}.difference(m.id for m in read) if in_run else ()
        needs_turns = plan.memory.limit is not None or plan.strategy.recalls
        return History(
            messages=messages,
            grouped=group_history(messages) if needs_turns or plan.layout == "tagged" else None,
            current=current,
            not_read=max(page.total - len(page.rows) - len(found), 0),
            run_not_read=frozenset(run_not_read),
            found=None if hits is None else sum([m.id not in elsewhere for m in found]),
            starts=self._starts(messages, page, newest) if plan.strategy.stable_prefix else {},
        )

    def _starts(
        self, messages: Sequence[Message], page: HistoryPage, newest: Sequence[Message]
    ) -> Mapping[str, int]:
        """Return the tokens before each row; ``newest`` are those of the page, oldest first.

        A store knows them for the rows of its page; otherwise they are estimated, from the first
        row.
        """
        layout = self.plan.layout
        known = page.native_starts if layout == "chat" else page.starts
        if known:
            return {row.id: start for row, start in zip(newest[::-1], known, strict=False)}
        starts: dict[str, int] = {}
        tokens = 0
        for message in sort_messages(messages):
            starts[message.id] = tokens
            if layout == "chat":
                tokens += messages_tokens([message], _ESTIMATE.count)
            elif message.role is not Role.TOOL:
                tokens += _ESTIMATE.count(message.content[:STORED_CHARS])
        return starts
