"""Spans of a request, without user content.

Without a tracer no spans are started, at a cost of a microsecond. Child spans use the tracer of
their parent, so that only the outermost span needs one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.errors import ContextBuilderError

log = structlog.get_logger(__name__)

#: The instrumentation scope of our spans.
SCOPE: Final = "context-builder"
#: An attribute of the semantic conventions.
ERROR_TYPE: Final = "error.type"


_W3C: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = re.compile(
    # version 00 ends after the flags; later versions may continue
    r"(?!ff|00[\s\S]{54})[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-[0-9a-f]{2}(?:-|\Z)"
)
#: A list member by https://www.w3.org/TR/trace-context/#tracestate-header. The library would quote
#: an invalid one in its log.
_MEMBER: Final = re.compile(
    r"[ \t]*(?:(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~][ \t]*)?"
)
_tracer: ContextVar[Tracer | None] = ContextVar("tracer", default=None)
#: The caller's trace, if our own spans aren't collected.
_callers: ContextVar[str | None] = ContextVar("callers", default=None)

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]


class TraceHeaders(NamedTuple):
    """The trace headers of a message."""

    traceparent: str | None
    tracestate: str | None


@contextmanager
def active_span(tracer: Tracer | None, name: str, **options: Any) -> Iterator[Span | None]:  # noqa: ANN401 - passed on
    """Start a span, the parent of the spans within the context; none without a tracer.

    ``options`` are those of OpenTelemetry's `Tracer.start_span`. An error is recorded by its code
    or class only, since messages may quote user content.
    """
    if tracer is None:
        yield None
        return
    options = {"record_exception": False, "set_status_on_exception": False, **options}
    with tracer.start_as_current_span(name, **options) as span:
        token = _tracer.set(tracer)
        try:
            yield span
        except BaseException as error:
            record_failure(span, error)
            raise
        finally:
            _tracer.reset(token)


def find_tracer() -> Tracer | None:
    """Return a tracer of the process's provider; None if it collects no spans."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    tracer = provider.get_tracer(SCOPE, version("ctxb"))
    # a disabled provider returns a tracer without effect
    return None if isinstance(tracer, trace.NoOpTracer) else tracer


@contextmanager
def with_caller_trace(traceparent: str | None) -> Iterator[None]:
    """Add the caller's trace to the log lines within the context; our own spans replace it."""
    token = _callers.set(traceparent)
    try:
        yield
    finally:
        _callers.reset(token)


def is_traced() -> bool:
    """Return whether spans are collected in this context."""
    return _tracer.get() is not None


def own_trace() -> TraceHeaders | None:
    """Return the headers of our current span; None if no spans are collected here."""
    return trace_headers() if is_traced() else None


def child_span(
    name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes | None = None
) -> AbstractContextManager[Span | None]:
    """Return a child of our current span; nothing without one."""
    return active_span(_tracer.get(), name, kind=kind, attributes=attributes)


def current_span() -> Span | None:
    """Return our current span if it is recorded."""
    if _tracer.get() is None:
        return None
    span = trace.get_current_span()
    return span if span.is_recording() else None


def set_attributes(attributes: Attributes) -> None:
    """Add attributes to the current span."""
    span = current_span()
    if span is not None:
        span.set_attributes(attributes)


def record_failure(span: Span | None, error: BaseException | str) -> None:
    """Mark a span as failed, with the code of the error or the name of its class."""
    if span is None:
        return
    kind = error if isinstance(error, str) else type(error).__name__
    if isinstance(error, ContextBuilderError) and error.code != ContextBuilderError.code:
        kind = error.code
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))


def trace_headers(traceparent: str | None = None, tracestate: str | None = None) -> TraceHeaders:
    """Return the headers of our current span, else the given ones."""
    if _tracer.get() is None:
        return TraceHeaders(traceparent, tracestate)
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return TraceHeaders(carrier.get("traceparent"), carrier.get("tracestate"))


def remote_context(traceparent: str | None, tracestate: str | None = None) -> Context:
    """Return the context of a caller's headers; invalid ones start a new trace."""
    if traceparent is None:
        return Context()
    if not _TRACEPARENT.match(traceparent):
        log_ignored_header("traceparent")
        return Context()
    headers = {"traceparent": traceparent}
    if tracestate is not None:
        if all(map(_MEMBER.fullmatch, tracestate.split(","))):
            headers["tracestate"] = tracestate
        else:
            log_ignored_header("tracestate")
    return _W3C.extract(headers, Context())


def remote_span(context: Context) -> SpanContext | None:
    """Return the span of a context, or None."""
    span = trace.get_current_span(context).get_span_context()
    return span if span.is_valid else None


@cache  # logged once per process: a caller with invalid headers sends many
def log_ignored_header(key: str) -> None:
    """Log that a caller's trace header is invalid."""
    log.warning("trace.ignored", key=key)


def current_ids() -> tuple[str, str] | None:
    """Return the ids of the trace and of our current span, or of the caller's, in hex digits."""
    if _tracer.get() is not None:
        span = trace.get_current_span().get_span_context()
        return trace.format_trace_id(span.trace_id), trace.format_span_id(span.span_id)
    traceparent = _callers.get()
    match = _TRACEPARENT.match(traceparent) if traceparent else None
    return (match[1], match[2]) if match else None
