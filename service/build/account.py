"""The account of a finished build: its response, with usage and decisions, and its span."""

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

#: The format of ``messages``.
CANONICAL: Final = "openai"

#: Created once, since each build writes several messages.
_DUMPED: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_REDUCED: Final = {
    "block_dropped": "the block [{tag}] was left out, since the budget is too small",
    "block_shortened": "the block [{tag}] was shortened, since the budget is too small",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished build: the context, and all that it was made from."""

    request: BuildRequest
    plan: Plan
    prompt: SystemPrompt
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
        metadata = self.request.metadata
        traceparent, tracestate = self.trace or metadata.trace
        return EventMetadata(
            request_id=self.request.id,
            correlation_id=metadata.correlation_id,
            build_id=self.content.build_id,
            traceparent=traceparent,
            tracestate=tracestate,
        )


def assemble_response(
    request: BuildRequest, plan: Plan, gathered: Gathered, fitted: Fitted, counter: TokenCounter
) -> BuildSuccess:
    """Return the context with its usage, decisions and warnings."""
    messages = render(fitted.blocks)
    decisions = list_decisions(plan, gathered, fitted)
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
        decisions=[to_record(decision) for decision in decisions] if plan.explain else [],
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
    """Return a message as JSON, in a JSON string."""
    if message["role"] == "system" and message.keys() == {"role", "content"}:
        return _written_system(message["content"])
    return canonical_json(_DUMPED.encode(message))


@lru_cache(maxsize=8)  # few differ, and they are the longest texts of most builds
def _written_system(content: str) -> bytes:
    return canonical_json(_DUMPED.encode({"role": "system", "content": content}))


def list_decisions(plan: Plan, gathered: Gathered, fitted: Fitted) -> list[Decision]:
    """Return the decisions on all rows that were read, and one for all that were not."""
    return [*fitted.decisions, *_unoffered(gathered, HISTORY_BLOCKS[plan.layout])]


def _management(request: BuildRequest) -> ContextManagement | None:
    option = request.options.context_management
    return option.to_management() if option else None


def _form_warnings(
    request: BuildRequest, form: str, management: ContextManagement | None
) -> Iterator[WarningRecord]:
    for index in find_unsupported_edits(form, management) if management else ():
        yield WarningRecord(
            code="unsupported_option",
            pointer=f"{request.options_pointer}/context_management/edits/{index}",
            detail=f"the format {form} doesn't support this edit, so it was left out",
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


def _unoffered(gathered: Gathered, block: str) -> Iterator[Decision]:
    """Yield decisions on rows that no block was offered."""
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


def _budget_warnings(plan: Plan, fitted: Fitted) -> Iterator[WarningRecord]:
    for block in fitted.reduced_blocks:
        yield WarningRecord(code=block.code, detail=_REDUCED[block.code].format(tag=block.tag))
    if fitted.history and fitted.history.insufficient:
        detail = f"{plan.strategy.name} kept more than fits; the oldest turns were dropped too"
        yield WarningRecord(code="strategy_insufficient", detail=detail)


#: Attribute names of OpenTelemetry's conventions.
MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
#: The prefix of all other attributes.
PREFIX: Final = "contextbuilder."


def build_span(tracer: Tracer | None, request: BuildRequest) -> AbstractContextManager[Span | None]:
    """Return the span of a build, a child of the current one."""
    if tracer is None:
        return NO_SPAN
    return ActiveSpan(
        tracer, SpanStart(name="build context", attributes=_request_attributes(request))
    )


def describe_build(built: Built) -> None:
    """Set the results of a build as attributes of the current span."""
    span = current_span()
    if span is None:
        return
    usage, content = built.content.usage, built.content
    span.set_attributes(
        {
            f"{PREFIX}build_id": content.build_id,
            f"{PREFIX}strategy": built.plan.strategy.name,
            f"{PREFIX}layout": built.plan.layout,
            f"{PREFIX}tokenizer": usage.tokenizer,
            f"{PREFIX}tokens.available": usage.available,
            f"{PREFIX}tokens.total": usage.total,
            f"{PREFIX}tokens.cacheable_prefix": usage.cacheable_prefix,
            f"{PREFIX}messages.kept": content.kept,
            f"{PREFIX}messages.dropped": content.dropped,
            f"{PREFIX}history.read": built.gathered.history.read,
            f"{PREFIX}warnings": [warning.code for warning in content.warnings],
        }
    )


def summary_span(
    tracer: Tracer | None, cause: EventMetadata
) -> AbstractContextManager[Span | None]:
    """Return the span of a summary, a child of the build that requested it."""
    if tracer is None:
        return NO_SPAN
    parent = remote_context(cause.traceparent, cause.tracestate)
    return ActiveSpan(tracer, SpanStart(name="summarize history", parent=parent))


def _request_attributes(request: BuildRequest) -> Attributes:
    attributes: dict[str, str] = {
        f"{PREFIX}request_id": request.id,
        f"{PREFIX}run_id": request.run_id,
    }
    if request.options.model:
        attributes[MODEL] = request.options.model
    if request.conversation_id:
        attributes[CONVERSATION] = request.conversation_id
    return attributes
