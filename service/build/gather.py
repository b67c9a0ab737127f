"""Every read of a build, at the same time, each with a timeout."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import structlog

from formatters.friends_info import read_profile_text
from formatters.model import Message, Summary
from formatters.rows import read_rows
from service.budget.groups import recalls, uses_summaries
from service.budget.toolset import Toolset, Toolsets
from service.build.history import History, read_past, read_stored
from service.build.plan import Plan
from service.build.tools import offered_tools, unlisted
from service.config.settings import Settings
from service.errors import (
    HistoryUnavailableError,
    StoreError,
    ToolError,
)
from service.observe.metrics import UNMEASURED, Metrics, timed
from service.ports.services import Prompts, ToolRegistry
from service.ports.stores import HistoryStore, ProfileStore
from service.ports.summaries import FailedScopes, Scope, SummaryStore
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord

log = structlog.get_logger()

T = TypeVar("T")

#: Ids that a warning names at most.
NAMED_IDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where facts come from."""

    history: HistoryStore
    profiles: ProfileStore
    tools: ToolRegistry
    #: None for the texts that are shipped.
    prompts: Prompts | None = None
    #: What was made of the registry's tools for earlier builds.
    toolsets: Toolsets = field(default_factory=Toolsets)
    #: None where there are none.
    summaries: SummaryStore | None = None
    #: The histories that should have a summary and couldn't get one.
    failed_scopes: FailedScopes = field(default_factory=FailedScopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a build works on."""

    history: History
    #: The run behind the current input, oldest first.
    run: tuple[Message, ...] = ()
    toolset: Toolset
    profile: Mapping[str, object]
    #: Of rows that are unchanged, in the order in which they were made.
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

    Tools and profile degrade to nothing, with a warning; so does history where it may.

    Raises:
        HistoryUnavailableError: The history can't be read, and has to be.
        InvalidRequestError: The request names a tool that there isn't, or brings a bad one.
    """
    limits = settings.gather
    try:
        async with asyncio.TaskGroup() as tasks:
            history = tasks.create_task(_history(request, plan, sources.history, settings, metrics))
            tools = tasks.create_task(
                _or_nothing(
                    "tools",
                    offered_tools(request, sources.tools, sources.toolsets),
                    Toolset(),
                    limits.tools_timeout_seconds,
                )
            )
            profile = tasks.create_task(
                _or_nothing(
                    "profile",
                    _profile(request, sources.profiles),
                    {},
                    limits.profile_timeout_seconds,
                )
            )
            summaries = tasks.create_task(
                _or_nothing(
                    "summary",
                    _summaries(request, plan, sources.summaries),
                    (),
                    limits.history_timeout_seconds,
                )
            )
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors  # one is enough to answer with
    reads = (history.result(), tools.result(), profile.result(), summaries.result())
    run = await asyncio.to_thread(_run, request) if request.run.history[1:] else ()
    return Gathered(
        run=run,
        history=reads[0].value,
        toolset=reads[1].value,
        profile=reads[2].value,
        summaries=tuple(_intact(reads[3].value, reads[0].value, request)),
        warnings=(
            *(read.warning for read in reads if read.warning),
            *_shortcomings(plan, history.result().value, run),
            *_unsummarized(request, plan, sources.failed_scopes),
            *unlisted(request, sources.tools),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """What was read, or what stands in for it and a warning."""

    value: T
    warning: WarningRecord | None = None


async def _or_nothing(what: str, read: Awaitable[T], nothing: T, seconds: float) -> _Read[T]:
    """Give a read so many seconds; where it fails, let ``nothing`` stand in with a warning."""
    try:
        async with asyncio.timeout(seconds):
            return _Read(await read)
    except (StoreError, ToolError, TimeoutError) as error:
        log.warning("gather.degraded", what=what, error=str(error) or type(error).__name__)
        warning = WarningRecord(code=f"{what}_unavailable", detail=f"the {what} could not be read")
        return _Read(nothing, warning)


# --- history ---------------------------------------------------------------------------------


async def _history(
    request: BuildRequest, plan: Plan, store: HistoryStore, settings: Settings, metrics: Metrics
) -> _Read[History]:
    if request.options.past is not None:
        return _Read(await read_past(request, plan, request.options.past))
    read = _or_nothing(
        "history",
        read_stored(request, plan, store, settings.memory),
        History(),
        settings.gather.history_timeout_seconds,
    )
    with timed(metrics, "history"):
        history = await read
    if history.warning and not settings.gather.degrade_history:
        seconds = settings.gather.history_timeout_seconds
        raise HistoryUnavailableError(f"the store failed, or gave no answer within {seconds:g} s")
    return history


def _run(request: BuildRequest) -> tuple[Message, ...]:
    """Read the run in flight; a message of it may have any number of calls."""
    return read_rows(request.run_rows)


def _shortcomings(plan: Plan, history: History, run: Sequence[Message]) -> Iterator[WarningRecord]:
    """Warn of what no decision tells: rows that a strategy could not see, and parts not shown."""
    unlimited = plan.memory.limit is None or recalls(plan.strategy)
    if history.not_read and history.found is None and plan.strategy.reads_all and unlimited:
        detail = f"{plan.strategy.name} chose from the newest {history.read} rows only"
        yield WarningRecord(code="history_capped", detail=detail)
    ids = [message.id for message in (*history.messages, *run) if message.partial]
    if ids:
        named = ", ".join(ids[:NAMED_IDS]) + (", …" if len(ids) > NAMED_IDS else "")
        detail = f"parts that are neither text nor image are left out of {len(ids)}: {named}"
        yield WarningRecord(code="content_skipped", detail=detail)


# --- summaries -------------------------------------------------------------------------------


async def _summaries(
    request: BuildRequest, plan: Plan, store: SummaryStore | None
) -> Sequence[Summary]:
    """Read the summaries of the stored history, if that is shown and its strategy uses any."""
    if store is None or request.options.past is not None or not uses_summaries(plan.strategy):
        return ()
    return await store.read(request.owner_key, plan.conversation_id)


def _intact(
    summaries: Sequence[Summary], history: History, request: BuildRequest
) -> Iterator[Summary]:
    """Yield the summaries whose rows are all there, as far as the rows that were read tell."""
    if not summaries:
        return
    read = {message.id for message in (*history.messages, *history.current)}
    read |= {str(row["id"]) for row in request.run_rows}
    for summary in summaries:
        if history.not_read or summary.covers <= read:
            yield summary


def _unsummarized(
    request: BuildRequest, plan: Plan, failed: FailedScopes
) -> Iterator[WarningRecord]:
    scope = Scope(request.owner_key, plan.conversation_id)
    if uses_summaries(plan.strategy) and request.options.past is None and scope in failed:
        detail = "the last summary could not be made; older turns are left out without one"
        yield WarningRecord(code="summary_unavailable", detail=detail)


# --- profile ---------------------------------------------------------------------------------


async def _profile(request: BuildRequest, store: ProfileStore) -> Mapping[str, object]:
    """Return the request's profile where it says something, else the stored one."""
    sent = request.run.metadata.user_profile or {}
    if read_profile_text(sent):
        return sent
    stored = await store.get(request.owner_key)
    return {**sent, **{key: value for key, value in stored.items() if value}}
