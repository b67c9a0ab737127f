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
from formatters.model import Facts, Message, Role, Summary
from formatters.rows import counted, fix_surrogates, read_rows
from prompts.system_prompt import SystemPrompt
from service.aio import LARGE_TEXT
from service.budget.counting import part_texts
from service.build.brought_rows import foreign_shapes, list_ids, past_warnings, unknown_roles
from service.build.history_reader import MAX_SHORT, SPEAKERS, History, RowReader
from service.build.plan import Plan
from service.build.row_cache import RowCache
from service.build.similarity import EmbeddedQuestion, Similarity
from service.build.tools import MAX_SETS, Toolset, Toolsets, read_tools, renamed_tools, stale_tools
from service.config.settings import Settings
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
    FailedScopes,
    HistoryStore,
    ProfileStore,
    Scope,
    SummaryStore,
)
from service.recall.question import NAMING_TEXTS, shorten_question, without_speakers
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

#: The least seconds between two log lines on equal failures.
LOG_SECONDS: Final = 60.0


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
                summaries = None
                if self.sources.summaries and self._uses_stored_summaries:
                    reading = self._summaries(self.sources.summaries)
                    summaries = start(read("summary", reading, (), seconds))
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
            summaries=tuple(self._valid_summaries(summaries.result() if summaries else (), past)),
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
                know: it answers the request. Of history, it is `HistoryUnavailableError`.
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
            cause = f"{detail}: {type(error).__name__}"
            if what == "history" and not self.settings.gather.degrade_history:
                raise HistoryUnavailableError(cause) from error
            if what not in {"history", "vectors"}:
                raise StoreError(cause) from error
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
        reader = RowReader(request, self.plan, store, rows, short, self.settings.memory)
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
        return [message.content for message in messages if message.role in SPEAKERS]

    async def _compare(self, history: History, question: EmbeddedQuestion) -> History:
        """Return a history with the similarities of its rows to the question."""
        ids = [message.id for message in history.messages if message.role in SPEAKERS]
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

    async def _summaries(self, store: SummaryStore) -> Sequence[Summary]:
        """Read the summaries of the stored history."""
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
        found=past.found,
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
    in_turns: list[Message] = []
    if facts.grouped and (facts.recalls or facts.layout == "tagged"):
        # what is recalled is mostly formatted as turns, too
        key = recalled.turn_key(facts) if facts.recalls else shared_memory.turn_key(facts)
        turns = [turn for turn in facts.grouped.turns if not turn.made or key not in turn.made]
        in_turns = [*chain.from_iterable(turn.messages for turn in turns), *facts.grouped.unprinted]
    if facts.layout == "tagged":
        return in_turns
    # the entry of a unit, whose other messages are results, is kept with its first message
    unit = native.unit_key(facts)
    shown = facts.history[len(facts.recalled_only) :]
    alone = [m for m in shown if unit not in (m.made or ()) and m.role is not Role.TOOL]
    return max(in_turns, alone, key=len)
