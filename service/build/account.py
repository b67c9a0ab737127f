"""The account of a finished build: its response, with usage and decisions, span and sizes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from opentelemetry.trace import Span, Tracer

from formatters.handles import LONGEST_HANDLE, make_handle
from formatters.model import (
    BEYOND_LIMIT,
    BUILT_IN_TAGS,
    CALL_NOT_READ,
    Message,
    NotShown,
    Role,
    Tag,
    Tool,
    render,
)
from formatters.providers.context_management import ContextManagement, find_unsupported_edits
from formatters.providers.formats import build_provider_request
from formatters.rows import counted
from service.budget.decisions import Decision, tally
from service.budget.fit_blocks import Fitted
from service.build.gather import Gathered
from service.build.plan import Plan
from service.build.tools import Toolset
from service.observe.metrics import NO_MODEL, OTHER_MODEL, Sizes
from service.observe.tracing import TraceHeaders, active_span, remote_context, set_attributes
from service.ports.services import TokenCounter
from service.wire.events import EventMetadata
from service.wire.payload import canonical_json, digest_json
from service.wire.recall import RecallRequest
from service.wire.request import BuildRequest, RequestFields
from service.wire.response import (
    COUNTS,
    BuildSuccess,
    DecisionRecord,
    Usage,
    WarningRecord,
    response_metadata,
)

#: The block where a layout shows history.
HISTORY_BLOCKS: Final = {"tagged": Tag.SHARED_MEMORY, "chat": Tag.HISTORY}

#: The format of ``messages``.
CANONICAL: Final = "openai"
#: The format that includes deferred tools, flagged as such.
DEFERRING: Final = "anthropic"

#: Created once, since each build writes several messages.
_DUMPED: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

#: The share of the available tokens at which the system message gets a warning.
LARGE_IDENTITY: Final = 1 / 3
#: The share of them below which a limit of rows leaves out what would fit.
LITTLE_USED: Final = 1 / 2

_REDUCED: Final = {
    "block_dropped": "the block [{tag}] was left out, since the budget is too small",
    "block_shortened": "the block [{tag}] was shortened, since the budget is too small",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished build: the context, and all that it was made from."""

    request: BuildRequest
    plan: Plan
    gathered: Gathered
    fitted: Fitted
    content: BuildSuccess
    #: Durations by stage of `service.observe.metrics`.
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: The trace headers of its span; None if no spans are collected.
    trace: TraceHeaders | None

    @property
    def cause(self) -> EventMetadata:
        """Return the metadata of events that this build causes."""
        metadata = response_metadata(self.request.envelope, self.trace)
        return EventMetadata(build_id=self.content.build_id, **dict(metadata))


def assemble_response(
    request: BuildRequest, plan: Plan, gathered: Gathered, fitted: Fitted, counter: TokenCounter
) -> BuildSuccess:
    """Return the context with its usage, decisions and warnings."""
    messages = render(fitted.blocks)
    outcomes = fitted.outcomes
    if current := gathered.history.current:
        outcomes["filtered"] += len(current)
    counts: dict[str, Any] = {"kept": 0, "dropped": 0, **outcomes}
    decisions = list_decisions(plan, gathered, fitted) if plan.explain else []
    stable = fitted.stable_prefix
    form, option = request.options.format or CANONICAL, request.options.context_management
    management = option.to_management() if option else None
    tools = gathered.toolset.tools
    identity = map(canonical_json, (request.owner_key, request.id, request.fingerprint))
    return BuildSuccess(
        messages=messages,
        tools=json.loads(gathered.toolset.json),  # a copy that callers may change
        provider_request=None
        if form == CANONICAL
        else build_provider_request(
            form,
            messages,
            (*tools, *_deferred(form, gathered.toolset)),
            stable.messages if stable.tools else None,
            management,
        ),
        usage=_usage(plan, fitted, counter, messages),
        build_id=f"bld_{digest_json([*identity, *map(_written, messages)])}",
        **counts,
        decisions=[to_record(decision) for decision in decisions],
        warnings=[
            *plan.warnings,
            *gathered.warnings,
            *_budget_warnings(plan, fitted, gathered.history.not_read),
            *_form_warnings(request, form, management),
        ],
    )


def _deferred(form: str, toolset: Toolset) -> Iterator[Tool]:
    """Yield the deferred tools for the form whose provider keeps them out of the prompt."""
    if form == DEFERRING:
        for tool in toolset.deferred:
            yield {**tool, "defer_loading": True}


def _written(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON, in a JSON string."""
    if message["role"] == "system" and message.keys() == {"role", "content"}:
        return _written_system(message["content"])
    return canonical_json(_DUMPED.encode(message))


@lru_cache(maxsize=8)  # few differ, and they are the longest texts of most builds
def _written_system(content: str) -> bytes:
    return canonical_json(_DUMPED.encode({"role": "system", "content": content}))


def list_decisions(plan: Plan, gathered: Gathered, fitted: Fitted) -> list[Decision]:
    """Return the decisions on all rows that were read, and one for all that were not."""
    decisions, history = [*fitted.decisions], gathered.history
    block = HISTORY_BLOCKS[plan.layout]
    if history.current:
        ids = tuple(message.id for message in history.current)
        decisions.append(
            Decision(message_ids=ids, block=block, outcome="filtered", reason="current_run")
        )
    if count := history.not_read:
        decisions.append(
            Decision(
                message_ids=(), block=block, outcome="not_read", reason="not_read", count=count
            )
        )
    return decisions


#: Reasons of rows that are sent, but not whole.
_NOT_WHOLE: Final = frozenset(
    {"call_only", "message_chars", "passages", "shortened", "result_cleared", "offloaded"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRows:
    """The rows that a build shows, by their ids."""

    #: With all of their calls.
    whole: frozenset[str] = frozenset()
    #: With their whole text, but only a part of their calls.
    annotated: frozenset[str] = frozenset()

    def has_whole(self, message: Message) -> bool:
        """Return whether a message is shown with all that it says and calls."""
        return message.id in self.whole or (message.id in self.annotated and not message.tool_calls)


def find_shown(built: Built) -> ShownRows:
    """Return the rows that a build shows, its input included."""
    native: set[str] = {built.request.input_id}
    printed: set[str] = set()
    for block in built.fitted.blocks:
        for entry in block.entries:
            ids = [message.id for message in entry.messages]
            if entry.reasons:
                ids = [id_ for id_ in ids if entry.reasons.get(id_) not in _NOT_WHOLE]
            (native if entry.native else printed).update(ids)
    return ShownRows(whole=frozenset(native), annotated=frozenset(printed))


#: Outcomes of rows that can be recalled, as can tool results that are shown only as a call.
_RECALLABLE: Final = frozenset({"dropped", "summarized", "cleared", "previewed", "truncated"})


def find_not_shown(gathered: Gathered, fitted: Fitted, unstored: frozenset[str]) -> NotShown | None:
    """Count the rows that a context doesn't show whole and that can be recalled; None if none.

    Of the run, only what is dropped counts. A result that is cut has a handle there, and the line
    would change in each step of the run, where cached prefixes would end.
    """
    rows = [r for r in (*gathered.history.messages, *gathered.run) if r.id not in unstored]
    stored = {row.id for row in rows}
    results = {row.id for row in rows if row.role is Role.TOOL}
    missing = {
        id_
        for decision in fitted.decisions
        for id_ in stored.intersection(decision.message_ids)
        if _is_missing(decision, is_result=id_ in results)
    }
    newest = next((row.id for row in reversed(rows) if row.id in missing), None)
    beside = newest or next((row.id for row in rows), None)
    missing_results = len(missing & results)
    messages = len(missing) - missing_results + gathered.history.not_read
    if not (messages or missing_results):
        return None
    handle = make_handle(beside) if beside else None
    return NotShown(messages=messages, results=missing_results, handle=handle)


def _is_missing(decision: Decision, *, is_result: bool) -> bool:
    if decision.block == Tag.RUN:
        return decision.outcome == "dropped"
    return decision.outcome in _RECALLABLE or (decision.outcome == "annotated" and is_result)


def most_not_shown(gathered: Gathered) -> NotShown | None:
    """Return the highest counts that `find_not_shown` can return."""
    rows = (*gathered.history.messages, *gathered.run)
    results = sum(row.role is Role.TOOL for row in rows)
    messages = len(rows) - results + gathered.history.not_read
    if not (messages or results):
        return None
    return NotShown(messages=messages, results=results, handle=LONGEST_HANDLE)


def _form_warnings(
    request: BuildRequest, form: str, management: ContextManagement | None
) -> Iterator[WarningRecord]:
    for index in find_unsupported_edits(form, management) if management else ():
        yield WarningRecord(
            code="unsupported_option",
            pointer=f"{request.options_pointer}/context_management/edits/{index}",
            detail=f"the format {form} doesn't support this edit, so it was left out",
        )


def _usage(
    plan: Plan, fitted: Fitted, counter: TokenCounter, messages: Iterable[Mapping[str, Any]]
) -> Usage:
    total = fitted.total
    # how many tokens a provider makes of its own parts isn't known
    opaque = any("provider_parts" in message for message in messages)
    return Usage(
        model=plan.model,
        tokenizer=counter.name,
        exact=counter.exact and plan.exact and not opaque,
        budget=plan.window.limit,
        reserve=plan.window.reserve,
        available=plan.window.available,
        total=total,
        tools=fitted.tools,
        utilization=round(total / plan.window.available, 3),
        cacheable_prefix=fitted.stable_prefix.tokens,
        blocks=fitted.tokens,
    )


def to_record(decision: Decision) -> DecisionRecord:
    """Return a decision in its form on the wire."""
    return DecisionRecord(
        message_ids=list(decision.message_ids),
        block=decision.block,
        decision=decision.outcome,
        reason=decision.reason,
        detail=decision.detail,
        tokens=decision.tokens,
        score=decision.score,
        smallest_budget=decision.smallest_budget,
        count=decision.count,
    )


def _budget_warnings(plan: Plan, fitted: Fitted, not_read: int) -> Iterator[WarningRecord]:
    for tag, code in fitted.reduced_blocks.items():
        yield WarningRecord(code=code, detail=_REDUCED[code].format(tag=tag))
    if fitted.history and fitted.history.insufficient:
        detail = f"{plan.strategy.name} kept more than fits; the oldest turns were dropped too"
        yield WarningRecord(code="strategy_insufficient", detail=detail)
    available = plan.window.available
    identity = fitted.tokens.get(Tag.CORE_IDENTITY, 0)
    if identity > LARGE_IDENTITY * available:
        detail = (
            f"the system message takes {identity} of the {available} available tokens; the "
            "settings prompts.identity and prompts.sections decide what is in it"
        )
        yield WarningRecord(code="identity_large", detail=detail)
    if fitted.total < LITTLE_USED * available:
        yield from _limit_warnings(plan, fitted, not_read)


def _limit_warnings(plan: Plan, fitted: Fitted, not_read: int) -> Iterator[WarningRecord]:
    """Warn of limits of history that leave something out of a context with much room."""
    used = f"while {fitted.total} of the {plan.window.available} available tokens are used"
    limit, chars = plan.memory.limit, plan.memory.message_chars
    gone = [d for d in fitted.decisions if d.outcome in {"dropped", "summarized"}]
    beyond = [d for d in gone if d.reason == BEYOND_LIMIT]
    # nothing that a strategy chose to leave out
    if limit and beyond and all(d.reason in {BEYOND_LIMIT, CALL_NOT_READ} for d in gone):
        left_out = tally(beyond)["dropped"] + not_read
        detail = (
            f"memory_limit, which is {limit}, left {left_out} messages out, {used}; null has no"
            " limit, and the strategy relevance recalls older messages by the input"
        )
        yield WarningRecord(code="memory_limited", detail=detail)
    cut = [id_ for d in fitted.decisions if d.reason == "message_chars" for id_ in d.message_ids]
    if cut:
        detail = (
            f"memory.message_chars, which is {chars}, cut {counted(len(cut), 'message')}, {used}"
        )
        yield WarningRecord(code="messages_cut", detail=f"{detail}; null has no limit")


#: Attribute names of OpenTelemetry's conventions.
MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
#: The prefix of all other attributes.
PREFIX: Final = "contextbuilder."


def build_span(tracer: Tracer | None, request: BuildRequest) -> AbstractContextManager[Span | None]:
    """Return the span of a build, a child of the current one."""
    more = {f"{PREFIX}run_id": request.run_id, MODEL: request.options.model}
    return _request_span(tracer, "build context", request, more)


def recall_span(
    tracer: Tracer | None, request: RecallRequest
) -> AbstractContextManager[Span | None]:
    """Return the span of a recall, a child of the current one."""
    return _request_span(tracer, "recall messages", request, {})


def _request_span(
    tracer: Tracer | None, name: str, request: RequestFields, more: Mapping[str, str | None]
) -> AbstractContextManager[Span | None]:
    ids = {f"{PREFIX}request_id": request.id, CONVERSATION: request.conversation_id}
    known = {key: value for key, value in {**ids, **more}.items() if value}
    return active_span(tracer, name, attributes=known)


def describe_build(built: Built) -> None:
    """Set the results of a build as attributes of the current span."""
    usage, content = built.content.usage, built.content
    set_attributes(
        {
            f"{PREFIX}build_id": content.build_id,
            f"{PREFIX}strategy": built.plan.strategy.name,
            f"{PREFIX}layout": built.plan.layout,
            f"{PREFIX}tokenizer": usage.tokenizer,
            f"{PREFIX}tokens.available": usage.available,
            f"{PREFIX}tokens.total": usage.total,
            f"{PREFIX}tokens.cacheable_prefix": usage.cacheable_prefix,
            **{f"{PREFIX}messages.{name}": getattr(content, name) for name in COUNTS},
            f"{PREFIX}history.read": built.gathered.history.read,
            f"{PREFIX}warnings": [warning.code for warning in content.warnings],
        }
    )


def summary_span(
    tracer: Tracer | None, cause: EventMetadata
) -> AbstractContextManager[Span | None]:
    """Return the span of a summary, a child of the build that requested it."""
    context = remote_context(cause.traceparent, cause.tracestate)
    return active_span(tracer, "summarize history", context=context)


#: The metric label of all custom blocks, whose tags are unbounded.
CUSTOM: Final = "custom"
#: The metric label of the array of tools.
TOOLS: Final = "tools"


def context_sizes(built: Built) -> Sizes:
    """Return the sizes of a context, under bounded labels."""
    fitted, plan, not_read = built.fitted, built.plan, built.gathered.history.not_read
    counts = [(name, getattr(built.content, name)) for name in COUNTS]
    blocks = [(_label(tag), tokens) for tag, tokens in fitted.tokens.items()]
    return Sizes(
        model=plan.known_model or (OTHER_MODEL if plan.model else NO_MODEL),
        blocks=[(TOOLS, fitted.tools), *blocks],
        utilization=built.content.usage.utilization,
        yielded=[(_label(tag), code) for tag, code in fitted.reduced_blocks.items()],
        decisions=[(name, rows) for name, rows in (*counts, ("not_read", not_read)) if rows],
        strategy=plan.strategy.name,
        saved=max(0, fitted.history.saved) if fitted.history else 0,
        without_vector=built.gathered.history.without_vector or 0,
    )


def _label(tag: str) -> str:
    return tag if tag in BUILT_IN_TAGS else CUSTOM
