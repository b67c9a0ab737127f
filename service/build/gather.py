"""Gather the facts of a build: read all that it needs, concurrently, each with a timeout."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from time import monotonic
from typing import Final, TypeVar

import structlog
from cachetools import LRUCache

from formatters import native, recalled, shared_memory
from formatters.friends_info import read_profile_text
from formatters.model import Facts, GroupedHistory, Message, Passage, Role, Row, Summary
from formatters.rows import counted, fix_surrogates, group_history, read_rows, sort_messages
from prompts.system_prompt import SystemPrompt
from service.aio import LARGE_TEXT
from service.budget.counting import messages_tokens, part_texts
from service.budget.estimates import HeuristicTokenCounter
from service.budget.strategies.relevance import Relevance
from service.build.brought_rows import foreign_shapes, list_ids, past_warnings, unknown_roles
from service.build.plan import Plan
from service.build.row_cache import RowCache
from service.build.similarity import EmbeddedQuestion, Similarity
from service.build.tools import MAX_SETS, Toolset, Toolsets, read_tools, renamed_tools, stale_tools
from service.config.settings import MemorySettings, Settings
from service.errors import (
    ContextBuilderError,
    EmbedderError,
    HistoryUnavailableError,
    StoreError,
    ToolError,
)
from service.observe.metrics import Metrics, timed
from service.ports.services import Prompts, ToolRegistry
from service.ports.stores import (
    MAX_FAILED_SCOPES,
    STORED_CHARS,
    FailedScopes,
    HistoryPage,
    HistoryStore,
    ProfileStore,
    Scope,
    SearchRequest,
    SummaryStore,
)
from service.recall.question import (
    LANGUAGE_PASSAGES,
    NAMING_TEXTS,
    question_terms,
    shorten_question,
    without_speakers,
)
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: The work of a message or a call besides its text, in characters.
MESSAGE_WORK: Final = 200
#: The work of a message that was formatted before: in characters, besides this share of its text.
#: To rank and fit one takes 8 to 18 microseconds of CPU, and less without ranking.
FORMATTED_WORK: Final = 50
FORMATTED_SHARE: Final = 1 / 8
#: The work of the opaque parts of a provider, in characters.
OPAQUE_WORK: Final = 5_000
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

#: The least seconds between two log lines on equal failures.
LOG_SECONDS: Final = 60.0

_ESTIMATE: Final = HeuristicTokenCounter()
_SPEAKERS: Final = frozenset({Role.HUMAN, Role.AI})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where facts come from."""

    history: HistoryStore
    profiles: ProfileStore
    tools: ToolRegistry
    #: None for the shipped texts.
    prompts: Prompts | None = None
    #: The rows of the history that were read before.
    rows: RowCache = field(default_factory=RowCache)
    #: Cached toolsets of the registry.
    toolsets: Toolsets = field(default_factory=partial(Toolsets, MAX_SETS))
    #: None without summaries.
    summaries: SummaryStore | None = None
    #: Histories whose last summary failed.
    failed_scopes: FailedScopes = field(default_factory=partial(FailedScopes, MAX_FAILED_SCOPES))
    #: Histories that were short enough to be read whole, which takes one read instead of two.
    short: LRUCache[Scope, bool] = field(default_factory=partial(LRUCache, MAX_SHORT))
    #: None unless rows are compared with questions by their vectors.
    similarity: Similarity | None = None
    #: When failures were logged last, by what was read and the class of the error.
    logged_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def is_news(self, what: str, error: Exception) -> bool:
        """Return whether no such failure was logged in the last minute: an outage has many."""
        now, failure = monotonic(), (what, type(error).__name__)
        if now - self.logged_at.get(failure, -LOG_SECONDS) < LOG_SECONDS:
            return False
        self.logged_at[failure] = now
        return True


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
    #: How many of the rows are hits of a search: the oldest, with gaps between them. None without
    #: a search.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The inputs of a build."""

    history: History
    #: The messages of the run after the current input, oldest first.
    run: tuple[Message, ...] = ()
    toolset: Toolset
    profile: Mapping[str, object]
    #: Valid summaries, in the order of their creation.
    summaries: tuple[Summary, ...] = ()
    warnings: tuple[WarningRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathering:
    """The reads of one build."""

    request: BuildRequest
    plan: Plan
    sources: Sources
    settings: Settings
    metrics: Metrics
    #: Warnings of reads that failed, by what was read.
    degraded: dict[str, WarningRecord] = field(default_factory=dict)

    async def gather(self) -> Gathered:
        """Read history, tools, profile and summaries.

        Tools, profile and summaries degrade to nothing, with a warning; so does history if the
        settings allow it.

        Raises:
            HistoryUnavailableError: The history can't be read, and the settings require it.
            InvalidRequestError: A tool is unknown, or its definition is invalid.
        """
        limits, read = self.settings.gather, self._read
        try:
            async with asyncio.TaskGroup() as tasks:
                start = tasks.create_task
                history = start(self.read_history())
                seconds = limits.tools_timeout_seconds
                tools = start(read("tools", self._tools(), (Toolset(), ()), seconds))
                seconds = limits.profile_timeout_seconds
                profile = start(read("profile", self._profile(), {}, seconds))
                seconds = limits.history_timeout_seconds
                summaries = start(read("summary", self._summaries(), (), seconds))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors  # one is enough for an answer
        past = history.result()
        run: tuple[Message, ...] = ()
        if self.request.run.history[1:]:
            run = await self._read_run()
        toolset, stale = tools.result()
        return Gathered(
            run=run,
            history=past,
            toolset=toolset,
            profile=profile.result(),
            summaries=tuple(self._valid_summaries(summaries.result(), past)),
            warnings=(
                *(warning for _, warning in sorted(self.degraded.items())),
                *self._history_warnings(past, run),
                *self._summary_warnings(),
                *stale,
            ),
        )

    async def _read_run(self) -> tuple[Message, ...]:
        rows = self.request.run_rows
        if sum([MESSAGE_WORK + len(str(row["content"])) for row in rows]) < LARGE_TEXT:
            return read_rows(rows)
        return await asyncio.to_thread(read_rows, rows)

    async def _read(self, what: str, read: Awaitable[T], fallback: T, seconds: float | None) -> T:
        """Read with a timeout; return ``fallback`` with a warning if the read fails.

        Raises:
            StoreError: Something that builds need can't be read, for a reason that the ports don't
                know: it answers the request.
        """
        detail = f"the {what} could not be read"
        try:
            async with asyncio.timeout(seconds):
                return await read
        except (StoreError, ToolError, EmbedderError, TimeoutError) as error:
            if self.sources.is_news(what, error):
                log.warning("gather.degraded", what=what, error=str(error) or type(error).__name__)
        except ContextBuilderError:
            raise
        except Exception as error:  # a store, registry or embedder of others may raise anything
            if self.sources.is_news(what, error):
                log.exception("gather.broken", what=what)
            if what not in {"history", "vectors"}:
                raise StoreError(f"{detail}: {type(error).__name__}") from error
        self.degraded[what] = WarningRecord(code=f"{what}_unavailable", detail=detail)
        return fallback

    async def _tools(self) -> tuple[Toolset, Sequence[WarningRecord]]:
        request, sources = self.request, self.sources
        defer = self.plan.search_tokens is not None
        toolset = await read_tools(
            request, sources.tools, sources.toolsets, self.plan.guard, defer=defer
        )
        return toolset, (*stale_tools(request, sources.tools), *renamed_tools(toolset))

    async def read_history(self) -> History:
        """Read the history, as `gather` does."""
        request, store = self.request, self.sources.history
        rows = self.sources.rows
        short = self.sources.short
        reader = _RowReader(request, self.plan, store, rows, short, self.settings.memory)
        if request.options.past is not None:
            return await reader.read_past(request.options.past)
        question = await self._embed_question()
        reader = replace(reader, question=question)
        seconds = self.settings.gather.history_timeout_seconds
        with timed(self.metrics, "history"):
            history = await self._read(
                "history", reader.read_stored(), History(failed=True), seconds
            )
        if "history" in self.degraded and not self.settings.gather.degrade_history:
            detail = f"the store failed, or didn't answer within {seconds:g} s"
            raise HistoryUnavailableError(detail)
        return await self._compare(history, question) if question else history

    async def _embed_question(self) -> EmbeddedQuestion | None:
        """Return the input with its vector, if rows are compared with it."""
        similarity = self.sources.similarity
        if similarity is None or not self.plan.strategy.recalls:
            return None
        seconds = None if similarity.waits else self.settings.recall.embedder.timeout_seconds
        texts = await self._read(
            "vectors", self._newest_texts(), (), self.settings.gather.history_timeout_seconds
        )
        question = without_speakers(shorten_question(self.request.current_input), texts)
        embedding = similarity.ask(self.request.owner_key, question)
        return await self._read("vectors", embedding, None, seconds)

    async def _newest_texts(self) -> Sequence[str]:
        """Return what was said last, for the names of those who speak."""
        scope = (self.request.owner_key, self.plan.conversation_id)
        newest = await self.sources.history.recent(*scope, max_rows=NAMING_TEXTS, max_tokens=None)
        messages = self.sources.rows.read(newest.rows)
        return [message.content for message in messages if message.role in _SPEAKERS]

    async def _compare(self, history: History, question: EmbeddedQuestion) -> History:
        """Return a history with the similarities of its rows to the question."""
        ids = [message.id for message in history.messages if message.role in _SPEAKERS]
        none: Mapping[str, float] = {}
        seconds = self.settings.recall.embedder.timeout_seconds
        similarities = await self._read("vectors", question.compare(ids), none, seconds)
        missing = len(ids) - len(similarities)
        return replace(history, similarities=similarities, without_vector=missing)

    def _history_warnings(
        self, history: History, run: Sequence[Message]
    ) -> Iterator[WarningRecord]:
        """Warn of rows that no strategy saw, and of parts not shown: no decision reports them."""
        strategy = self.plan.strategy
        unlimited = self.plan.memory.limit is None or strategy.recalls
        if history.not_read and history.found is None and strategy.reads_all and unlimited:
            detail = f"{strategy.name} chose from the newest {history.read} rows only"
            yield WarningRecord(code="history_capped", detail=detail)
        past, pointer = self.request.options.past or (), f"{self.request.options_pointer}/past"
        in_past = [*past_warnings(past, pointer, self.plan.now)] if past else []
        sent = self.request.run.history
        in_run = [*self._foreign_in_run()] if any(message.partial for message in run) else []
        is_named = any(warning.code == "content_skipped" for warning in in_past)
        others = (*(() if is_named else history.messages), *(() if in_run else run))
        if ids := [message.id for message in others if message.partial]:
            messages = f"{counted(len(ids), 'message')}: {list_ids(ids)}"
            detail = f"content other than text and images left out of {messages}"
            yield WarningRecord(code="content_skipped", detail=detail)
        yield from (*in_past, *in_run)
        if past and history.messages and self._repeats_input(history.messages[-1]):
            detail = (
                "the last message of past has the words of the current input, so the model reads"
                " them twice; leave it out of past"
            )
            place = f"{pointer}/{len(past) - 1}"
            yield WarningRecord(code="input_repeated", pointer=place, detail=detail)
        answered = any(_is_answer(one) and two.role is Role.HUMAN for one, two in pairwise(run))
        if answered and not in_run:
            detail = (
                "a user's message follows an answer, but the first message is the current input;"
                " earlier messages belong into past of context"
            )
            yield WarningRecord(code="past_in_run", pointer="/content/history", detail=detail)
        if Role.OTHER in [message.role for message in (*history.messages, *run)]:
            yield from unknown_roles([row.get("role") for row in past], pointer)
            yield from unknown_roles([message.role for message in sent], "/content/history")

    def _foreign_in_run(self) -> Iterator[WarningRecord]:
        keys = {"content", "parts"}
        sent = self.request.run.history
        rows = [message.model_dump(include=keys, exclude_unset=True) for message in sent]
        return foreign_shapes(rows, "/content/history")

    def _repeats_input(self, message: Message) -> bool:
        same_text = message.content.strip() == self.request.current_input.strip()
        return message.role is Role.HUMAN and same_text

    async def _summaries(self) -> Sequence[Summary]:
        """Read the summaries of the stored history, if the strategy uses any."""
        store = self.sources.summaries
        if store is None or not self._uses_stored_summaries:
            return ()
        return await store.read(self.request.owner_key, self.plan.conversation_id)

    @property
    def _uses_stored_summaries(self) -> bool:
        return self.plan.strategy.uses_summaries and self.request.options.past is None

    def _valid_summaries(self, summaries: Sequence[Summary], history: History) -> Iterator[Summary]:
        """Yield the summaries whose rows still exist, as far as the rows that were read show."""
        if not summaries:
            return
        read = {message.id for message in (*history.messages, *history.current)}
        read |= {str(row["id"]) for row in self.request.run_rows}
        for summary in summaries:
            if history.not_read or summary.covers <= read:
                yield summary

    def _summary_warnings(self) -> Iterator[WarningRecord]:
        scope = Scope(self.request.owner_key, self.plan.conversation_id)
        if self._uses_stored_summaries and scope in self.sources.failed_scopes:
            detail = "the last summary could not be made; older turns are left out without one"
            yield WarningRecord(code="summary_unavailable", detail=detail)

    async def _profile(self) -> Mapping[str, object]:
        """Return the profile of the request if it has a text, else the stored one."""
        sent = self.request.run.metadata.user_profile or {}
        if read_profile_text(sent):
            return sent
        stored = await self.sources.profiles.get(self.request.owner_key)
        return {**sent, **{key: value for key, value in stored.items() if value}}


def _is_answer(message: Message) -> bool:
    return message.role is Role.AI and bool(message.content.strip()) and not message.tool_calls


@dataclass(frozen=True, slots=True)
class _RowReader:
    """Reads the newest rows that a build can use, and older ones that match its question."""

    request: BuildRequest
    plan: Plan
    store: HistoryStore
    cache: RowCache
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
        if scope in self.short:
            newest = await self._read_page(min(whole, most), None)
            if newest.total <= whole:
                return await self._to_history(newest)
            del self.short[scope]
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
        conversation, question = self.plan.conversation_id, self.question
        similar = await question.nearest(conversation, max_rows) if question else ()
        if not terms and not similar:
            return ()
        (oldest,) = newest[-1:]  # the only one that is parsed
        request = SearchRequest(terms, str(oldest["id"]), max_rows, similar)
        return await self.store.search(self.request.owner_key, conversation, request)

    def _last_passages(self, newest: Sequence[Row]) -> list[Passage]:
        """Return the last things said, oldest first, as the context of the question."""
        said = [
            Passage(message.content[:STORED_CHARS], message.role)
            for message in self.cache.read(newest[: 2 * LANGUAGE_PASSAGES][::-1])
            if message.role in _SPEAKERS and message.id != self.request.input_id
        ]
        return said[-LANGUAGE_PASSAGES:]

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
        work = sum(self.cache.count_new(rows) + len(rows) // 10 for rows in (page.rows, hits or ()))
        if work < MANY_ROWS:
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
            found=None if hits is None else len(found),
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


def make_facts(
    request: BuildRequest, plan: Plan, gathered: Gathered, prompt: SystemPrompt, settings: Settings
) -> Facts:
    """Return what was gathered as the facts that formatters take."""
    past = gathered.history
    blocks = request.options.blocks or {}
    return Facts(
        current_input=fix_surrogates(request.current_input),
        identity=prompt.text(plan.identity, guarded=plan.guard.gutter),
        now=plan.now,
        history=past.messages,
        grouped=past.grouped,
        more_history=past.not_read > 0,
        has_gaps=past.found is not None,
        history_failed=past.failed,
        starts=past.starts,
        similarities=past.similarities,
        summaries=gathered.summaries,
        tools=gathered.toolset.tools,
        capabilities=settings.prompts.capabilities,
        profile=gathered.profile,
        default_profile=settings.user_defaults.prompts.friends_profile.content,
        blocks={tag: fix_surrogates(text) for tag, text in blocks.items()},
        run=gathered.run,
        layout=plan.layout,
        memory=plan.memory,
        recalls=plan.strategy.recalls,
        unstored=_unstored(request, gathered),
        guard=plan.guard,
    )


def _unstored(request: BuildRequest, gathered: Gathered) -> frozenset[str]:
    """Return the ids of rows that no recall finds: without own ids, or of a past."""
    if request.options.past is None:
        return request.derived_ids if gathered.run else frozenset()
    return frozenset(message.id for message in (*gathered.history.messages, *gathered.run))


def work_size(facts: Facts) -> int:
    """Return how much work it is to format and fit facts, in characters of new text.

    The texts don't count where the number of messages alone makes it `LARGE_TEXT`.
    """
    history, run = facts.history, facts.run
    unformatted = _not_formatted(facts)
    new, formatted = (*unformatted, *run), len(history) - len(unformatted)
    work = MESSAGE_WORK * len(new) + FORMATTED_WORK * formatted
    if work >= LARGE_TEXT:
        return work
    profile = read_profile_text(facts.profile) or facts.default_profile
    summaries = (summary.text for summary in facts.summaries)
    texts = (facts.current_input, facts.identity or "", profile, *facts.blocks.values(), *summaries)
    calls = sum([len(message.tool_calls) for message in new])
    opaque = [m.provider_parts for m in (*history, *run) if m.provider_parts is not None]
    return (
        work
        + sum(map(len, texts))
        + sum([len(message.content) for message in new])
        + int(FORMATTED_SHARE * sum([len(message.content) for message in history]))
        + MESSAGE_WORK * calls
        + OPAQUE_WORK * len(opaque)
        + sum(map(len, part_texts(opaque)))
    )


def _not_formatted(facts: Facts) -> Sequence[Message]:
    """Return the messages of the history that no build has formatted as this one will."""
    turns, keys = facts.grouped.turns if facts.grouped else (), []
    if facts.layout == "tagged":
        keys.append(shared_memory.turn_key(facts))
    if facts.recalls:
        keys.append(recalled.turn_key(facts))
    by_key = ([turn for turn in turns if not turn.made or key not in turn.made] for key in keys)
    new = chain.from_iterable(turn.messages for turn in max(by_key, key=len, default=()))
    in_turns = [*new, *(facts.grouped.unprinted if facts.grouped else ())]
    if facts.layout == "tagged":
        return in_turns
    # the entry of a unit, whose other messages are results, is kept with its first message
    key = native.unit_key(facts)
    alone = [m for m in facts.history if key not in (m.made or ()) and m.role is not Role.TOOL]
    return max(in_turns, alone, key=len)
