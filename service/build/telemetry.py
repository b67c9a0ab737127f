"""The span of a build, and what it tells: sizes and codes, and no word of anybody's."""

from contextlib import AbstractContextManager
from typing import Final

from opentelemetry.trace import Span, Tracer

from service.build.report import Built
from service.observe.tracing import (
    NO_SPAN,
    ActiveSpan,
    Attributes,
    SpanStart,
    current_span,
    remote_context,
)
from service.wire.events import EventMetadata
from service.wire.request import BuildRequest

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
