"""Report a finished build: its response with usage and decisions, and its span."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from opentelemetry.trace import Span, Tracer

from formatters.model import Tag
from formatters.providers.context_management import ContextManagement, find_unsupported_edits
from formatters.providers.formats import build_provider_request
from formatters.render import render
from prompts.system_prompt import SystemPrompt
from service.budget.decisions import Decision, tally
from service.budget.fit_blocks import Fitted
from service.build.gather import Gathered
from service.build.plan import Plan
from service.observe.tracing import (
    NO_SPAN,
    ActiveSpan,
    Attributes,
    SpanStart,
    TraceHeaders,
    current_span,
    remote_context,
)
from service.ports.services import TokenCounter
from service.wire.events import EventMetadata
from service.wire.payload import canonical_json, digest_json
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess, DecisionRecord, Usage, WarningRecord

#: The block in which a layout shows history.
HISTORY_BLOCKS: Final = {"tagged": Tag.SHARED_MEMORY, "chat": Tag.HISTORY}

#: The form that ``messages`` are in.
CANONICAL: Final = "openai"

#: Made once, since each build writes several messages.
_DUMPED: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_REDUCED: Final = {
    "block_dropped": "the block [{tag}] was left out, since the budget is short",
    "block_shortened": "the block [{tag}] was shortened, since the budget is short",
}


def account(
    request: BuildRequest, plan: Plan, gathered: Gathered, fitted: Fitted, counter: TokenCounter
) -> BuildSuccess:
    """Put a context together with its account."""
    messages = render(fitted.blocks)
    decisions = decided(plan, gathered, fitted)
    kept, dropped = tally(decisions)
    form, management = request.options.format or CANONICAL, _management(request)
    tools = gathered.toolset.tools
    return BuildSuccess(
        messages=messages,
        tools=json.loads(gathered.toolset.json),  # a copy that callers may change
        provider_request=None
        if form == CANONICAL
        else build_provider_request(
            form, messages, tools, fitted.stable_prefix.messages or None, management
        ),
        usage=_usage(plan, fitted, counter),
        build_id=_build_id(request, messages),
        kept=kept,
        dropped=dropped,
        decisions=[record(decision) for decision in decisions] if plan.explain else [],
        warnings=[
            *plan.warnings,
            *gathered.warnings,
            *_budget_warnings(plan, fitted),
            *_form_warnings(request, form, management),
        ],
    )


def _build_id(request: BuildRequest, messages: Sequence[Mapping[str, Any]]) -> str:
    identity = (request.owner_key, request.id, request.fingerprint)
    return f"bld_{digest_json([*map(canonical_json, identity), *map(_written, messages)])}"


def _written(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON in a JSON string."""
    if message["role"] == "system" and message.keys() == {"role", "content"}:
        return _written_system(message["content"])
    return canonical_json(_DUMPED.encode(message))


@lru_cache(maxsize=8)  # builds have the same few, and the longest text of most of them
def _written_system(content: str) -> bytes:
    return canonical_json(_DUMPED.encode({"role": "system", "content": content}))


def decided(plan: Plan, gathered: Gathered, fitted: Fitted) -> list[Decision]:
    """Return the decisions on all rows that were read, and one on those that were not."""
    return [*fitted.decisions, *_unseen(gathered, HISTORY_BLOCKS[plan.layout])]


def _management(request: BuildRequest) -> ContextManagement | None:
    option = request.options.context_management
    return option.to_management() if option else None


def _form_warnings(
    request: BuildRequest, form: str, management: ContextManagement | None
) -> Iterator[WarningRecord]:
    for place in find_unsupported_edits(form, management) if management else ():
        yield WarningRecord(
            code="unsupported_option",
            pointer=f"{request.options_pointer}/context_management/edits/{place}",
            detail=f"the form {form} has no such edit, so it was left out",
        )


def _usage(plan: Plan, fitted: Fitted, counter: TokenCounter) -> Usage:
    total = sum(fitted.tokens.values()) + fitted.tools
    return Usage(
        model=plan.model,
        tokenizer=counter.name,
        exact=counter.exact and plan.exact,
        budget=plan.window.limit,
        reserve=plan.window.reserve,
        available=plan.window.available,
        total=total,
        tools=fitted.tools,
        utilization=round(total / plan.window.available, 3),
        cacheable_prefix=fitted.stable_prefix.tokens,
        blocks=fitted.tokens,
    )


def _unseen(gathered: Gathered, block: str) -> Iterator[Decision]:
    """Account for rows that no block was shown."""
    history = gathered.history
    if history.current:
        ids = tuple(message.id for message in history.current)
        yield Decision(message_ids=ids, block=block, outcome="filtered", reason="current_run")
    if history.not_read:
        yield Decision(
            message_ids=(),
            block=block,
            outcome="not_read",
            reason="not_read",
            count=history.not_read,
        )


def record(decision: Decision) -> DecisionRecord:
    """Return a decision as it stands on the wire."""
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


def _budget_warnings(plan: Plan, fitted: Fitted) -> Iterator[WarningRecord]:
    for block in fitted.reduced_blocks:
        yield WarningRecord(code=block.code, detail=_REDUCED[block.code].format(tag=block.tag))
    if fitted.history and fitted.history.insufficient:
        detail = f"{plan.strategy.name} kept more than the budget holds; the oldest turns went too"
        yield WarningRecord(code="strategy_insufficient", detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A context, with all that it was made of."""

    request: BuildRequest
    plan: Plan
    prompt: SystemPrompt
    gathered: Gathered
    fitted: Fitted
    content: BuildSuccess
    #: How long its parts took, by their names among the stages of `service.observe.metrics`.
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: Where in a trace it was built; None where spans of ours are not collected.
    trace: TraceHeaders | None

    @property
    def cause(self) -> EventMetadata:
        """Return what events name of the build that led to them."""
        metadata = self.request.metadata
        traceparent, tracestate = self.trace or metadata.trace
        return EventMetadata(
            request_id=self.request.id,
            correlation_id=metadata.correlation_id,
            build_id=self.content.build_id,
            traceparent=traceparent,
            tracestate=tracestate,
        )


#: Names of the field's, where it has any.
MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
#: What ours begin with.
OURS: Final = "contextbuilder."


def build_span(tracer: Tracer | None, request: BuildRequest) -> AbstractContextManager[Span | None]:
    """Return the span of a build, below the one that is current."""
    if tracer is None:
        return NO_SPAN
    return ActiveSpan(tracer, SpanStart(name="build context", attributes=_asked(request)))


def describe_build(built: Built) -> None:
    """Tell what a context came to."""
    span = current_span()
    if span is None:
        return
    usage, content = built.content.usage, built.content
    span.set_attributes(
        {
            f"{OURS}build_id": content.build_id,
            f"{OURS}strategy": built.plan.strategy.name,
            f"{OURS}layout": built.plan.layout,
            f"{OURS}tokenizer": usage.tokenizer,
            f"{OURS}tokens.available": usage.available,
            f"{OURS}tokens.total": usage.total,
            f"{OURS}tokens.cacheable_prefix": usage.cacheable_prefix,
            f"{OURS}messages.kept": content.kept,
            f"{OURS}messages.dropped": content.dropped,
            f"{OURS}history.read": built.gathered.history.read,
            f"{OURS}warnings": [warning.code for warning in content.warnings],
        }
    )


def summary_span(
    tracer: Tracer | None, cause: EventMetadata
) -> AbstractContextManager[Span | None]:
    """Return the span of what is made of older history, below the build that asked for it."""
    if tracer is None:
        return NO_SPAN
    place = remote_context(cause.traceparent, cause.tracestate)
    return ActiveSpan(tracer, SpanStart(name="summarize history", parent=place))


def _asked(request: BuildRequest) -> Attributes:
    asked: dict[str, str] = {f"{OURS}request_id": request.id, f"{OURS}run_id": request.run_id}
    if request.options.model:
        asked[MODEL] = request.options.model
    if request.conversation_id:
        asked[CONVERSATION] = request.conversation_id
    return asked
