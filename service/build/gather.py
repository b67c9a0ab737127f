"""Read everything that a build needs, concurrently, each read with a timeout."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import structlog

from formatters.friends_info import read_profile_text
from formatters.model import Message, Summary
from formatters.rows import read_rows
from service.budget.groups import uses_summaries
from service.budget.strategies.relevance import recalls
from service.budget.toolset import Toolset, Toolsets
from service.build.history import History, read_past, read_stored
from service.build.plan import Plan
from service.build.tools import read_tools, stale_tools
from service.config.settings import Settings
from service.errors import (
    HistoryUnavailableError,
    StoreError,
    ToolError,
)
from service.observe.metrics import UNMEASURED, Metrics, timed
from service.ports.services import Prompts, ToolRegistry
from service.ports.stores import HistoryReader, HistoryStore, ProfileStore
from service.ports.summaries import FailedScopes, Scope, SummaryStore
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Limit of the ids that a warning lists.
MAX_IDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where facts come from."""

    history: HistoryStore
    profiles: ProfileStore
    tools: ToolRegistry
    #: None for the shipped texts.
    prompts: Prompts | None = None
    #: Cached toolsets of the registry.
    toolsets: Toolsets = field(default_factory=Toolsets)
    #: None without summaries.
    summaries: SummaryStore | None = None
    #: Histories whose last summary failed.
    failed_scopes: FailedScopes = field(default_factory=FailedScopes)


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


async def gather(
    request: BuildRequest,
    plan: Plan,
    sources: Sources,
    settings: Settings,
    metrics: Metrics = UNMEASURED,
) -> Gathered:
    """Read history, tools and profile.

    Tools, profile and summaries degrade to nothing, with a warning; so does history if the
    settings allow it.

    Raises:
        HistoryUnavailableError: The history can't be read, and the settings require it.
        InvalidRequestError: A tool is unknown, or its definition is invalid.
    """
    limits = settings.gather
    try:
        async with asyncio.TaskGroup() as tasks:
            history = tasks.create_task(_history(request, plan, sources.history, settings, metrics))
            tools = tasks.create_task(
                _or_fallback(
                    "tools",
                    read_tools(request, sources.tools, sources.toolsets),
                    Toolset(),
                    limits.tools_timeout_seconds,
                )
            )
            profile = tasks.create_task(
                _or_fallback(
                    "profile",
                    _profile(request, sources.profiles),
                    {},
                    limits.profile_timeout_seconds,
                )
            )
            summaries = tasks.create_task(
                _or_fallback(
                    "summary",
                    _summaries(request, plan, sources.summaries),
                    (),
                    limits.history_timeout_seconds,
                )
            )
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors  # one is enough for an answer
    reads = (history.result(), tools.result(), profile.result(), summaries.result())
    run = await asyncio.to_thread(_run, request) if request.run.history[1:] else ()
    return Gathered(
        run=run,
        history=reads[0].value,
        toolset=reads[1].value,
        profile=reads[2].value,
        summaries=tuple(_valid_summaries(reads[3].value, reads[0].value, request)),
        warnings=(
            *(read.warning for read in reads if read.warning),
            *_history_warnings(plan, history.result().value, run),
            *_summary_warnings(request, plan, sources.failed_scopes),
            *stale_tools(request, sources.tools),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """A value that was read, or a fallback with a warning."""

    value: T
    warning: WarningRecord | None = None


async def _or_fallback(what: str, read: Awaitable[T], fallback: T, seconds: float) -> _Read[T]:
    """Read with a timeout; return ``fallback`` with a warning if the read fails."""
    try:
        async with asyncio.timeout(seconds):
            return _Read(await read)
    except (StoreError, ToolError, TimeoutError) as error:
        log.warning("gather.degraded", what=what, error=str(error) or type(error).__name__)
        warning = WarningRecord(code=f"{what}_unavailable", detail=f"the {what} could not be read")
        return _Read(fallback, warning)


# --- history ---------------------------------------------------------------------------------


async def _history(
    request: BuildRequest, plan: Plan, store: HistoryReader, settings: Settings, metrics: Metrics
) -> _Read[History]:
    if request.options.past is not None:
        return _Read(await read_past(request, plan, request.options.past))
    read = _or_fallback(
        "history",
        read_stored(request, plan, store, settings.memory),
        History(),
        settings.gather.history_timeout_seconds,
    )
    with timed(metrics, "history"):
        history = await read
    if history.warning and not settings.gather.degrade_history:
        seconds = settings.gather.history_timeout_seconds
        raise HistoryUnavailableError(f"the store failed, or didn't answer within {seconds:g} s")
    return history


def _run(request: BuildRequest) -> tuple[Message, ...]:
    """Read the messages of the run."""
    return read_rows(request.run_rows)


def _history_warnings(
    plan: Plan, history: History, run: Sequence[Message]
) -> Iterator[WarningRecord]:
    """Warn of what no decision reports: rows that a strategy didn't see, and parts not shown."""
    unlimited = plan.memory.limit is None or recalls(plan.strategy)
    if history.not_read and history.found is None and plan.strategy.reads_all and unlimited:
        detail = f"{plan.strategy.name} chose from the newest {history.read} rows only"
        yield WarningRecord(code="history_capped", detail=detail)
    ids = [message.id for message in (*history.messages, *run) if message.partial]
    if ids:
        listed = ", ".join(ids[:MAX_IDS]) + (", …" if len(ids) > MAX_IDS else "")
        detail = f"{len(ids)} messages have parts other than text and images, left out: {listed}"
        yield WarningRecord(code="content_skipped", detail=detail)


# --- summaries -------------------------------------------------------------------------------


async def _summaries(
    request: BuildRequest, plan: Plan, store: SummaryStore | None
) -> Sequence[Summary]:
    """Read the summaries of the stored history, if the strategy uses any."""
    if store is None or request.options.past is not None or not uses_summaries(plan.strategy):
        return ()
    return await store.read(request.owner_key, plan.conversation_id)


def _valid_summaries(
    summaries: Sequence[Summary], history: History, request: BuildRequest
) -> Iterator[Summary]:
    """Yield the summaries whose rows still exist, as far as the rows that were read show."""
    if not summaries:
        return
    read = {message.id for message in (*history.messages, *history.current)}
    read |= {str(row["id"]) for row in request.run_rows}
    for summary in summaries:
        if history.not_read or summary.covers <= read:
            yield summary


def _summary_warnings(
    request: BuildRequest, plan: Plan, failed: FailedScopes
) -> Iterator[WarningRecord]:
    scope = Scope(request.owner_key, plan.conversation_id)
    if uses_summaries(plan.strategy) and request.options.past is None and scope in failed:
        detail = "the last summary could not be made; older turns are left out without one"
        yield WarningRecord(code="summary_unavailable", detail=detail)


# --- profile ---------------------------------------------------------------------------------


async def _profile(request: BuildRequest, store: ProfileStore) -> Mapping[str, object]:
    """Return the profile of the request if it has a text, else the stored one."""
    sent = request.run.metadata.user_profile or {}
    if read_profile_text(sent):
        return sent
    stored = await store.get(request.owner_key)
    return {**sent, **{key: value for key, value in stored.items() if value}}
