"""Spans of a request, without user content.

Without a tracer no spans are started, at a cost below a microsecond. Child spans use the tracer of
their parent, so that only the outermost span needs one.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Final, NamedTuple

import structlog
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
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


NO_TRACE: Final = TraceHeaders(None, None)


class SpanIds(NamedTuple):
    """The ids of a span, in hex digits."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStart:
    """The arguments of a new span."""

    name: str
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Attributes = field(default_factory=dict)
    #: None for the current span.
    parent: Context | None = None
    links: Sequence[Link] = ()


class ActiveSpan(AbstractContextManager[Span]):
    """A context manager with a span, the parent of the spans within.

    An error is recorded by its code or class only, since messages may quote user content.
    """

    __slots__ = ("_span", "_start", "_tokens", "_tracer")

    def __init__(self, tracer: Tracer, start: SpanStart) -> None:
        self._tracer = tracer
        self._start = start

    def __enter__(self) -> Span:
        start = self._start
        self._span = self._tracer.start_span(
            start.name,
            context=start.parent,
            kind=start.kind,
            attributes=start.attributes,
            links=start.links,
        )
        self._tokens = (attach(trace.set_span_in_context(self._span)), _tracer.set(self._tracer))
        return self._span

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        _tracer.reset(self._tokens[1])
        detach(self._tokens[0])
        if error is not None:
            record_failure(self._span, error)
        self._span.end()


class _Following(AbstractContextManager[None]):
    """Adds the caller's trace to the log lines within the context."""

    __slots__ = ("_token", "_traceparent")

    def __init__(self, traceparent: str) -> None:
        self._traceparent = traceparent

    def __enter__(self) -> None:
        self._token = _callers.set(self._traceparent)

    def __exit__(self, *_: object) -> None:
        _callers.reset(self._token)


class _Nothing(AbstractContextManager[None]):
    """A context manager that does nothing, faster than `contextlib.nullcontext`."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        pass


#: The context manager of an operation without a span.
NO_SPAN: Final = _Nothing()


def find_tracer() -> Tracer | None:
    """Return a tracer of the process's provider; None if it collects no spans."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    tracer = provider.get_tracer(SCOPE, version(SCOPE))
    # a disabled provider returns a tracer without effect
    return None if isinstance(tracer, trace.NoOpTracer) else tracer


def with_caller_trace(traceparent: str | None) -> AbstractContextManager[None]:
    """Return a context whose log lines have the caller's trace, if our spans aren't collected."""
    return _Following(traceparent) if traceparent else NO_SPAN


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
    tracer = _tracer.get()
    if tracer is None:
        return NO_SPAN
    return ActiveSpan(tracer, SpanStart(name=name, kind=kind, attributes=attributes or {}))


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
    span.set_attribute(ERROR_TYPE, error if isinstance(error, str) else _kind(error))
    span.set_status(Status(StatusCode.ERROR))


def _kind(error: BaseException) -> str:
    """Return the code of an error, or the name of its class if the code is the root's."""
    if isinstance(error, ContextBuilderError) and error.code != ContextBuilderError.code:
        return error.code
    return type(error).__name__


# --- the wire --------------------------------------------------------------------------------


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


def current_ids() -> SpanIds | None:
    """Return the ids of our current span, or of the caller's."""
    if _tracer.get() is not None:
        span = trace.get_current_span().get_span_context()
        return SpanIds(trace.format_trace_id(span.trace_id), trace.format_span_id(span.span_id))
    traceparent = _callers.get()
    match = _TRACEPARENT.match(traceparent) if traceparent else None
    return SpanIds(match[1], match[2]) if match else None
