"""Spans: where the time of a request goes, for whoever collects traces; nothing that was said.

Without a tracer nothing is begun, and what stands in for it costs a fraction of a microsecond. The
spans within one take its tracer, so that only the outermost has to be given any.
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

log = structlog.get_logger()

#: Under which our spans stand among those of others.
SCOPE: Final = "context-builder"
#: Stable names of the field's, for what our own modules tell of themselves.
ERROR_TYPE: Final = "error.type"


_W3C: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = re.compile(
    # the first version ends behind its flags, later ones may go on
    r"(?!ff|00[\s\S]{54})[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-[0-9a-f]{2}(?:-|\Z)"
)
#: A member of the list, by https://www.w3.org/TR/trace-context/#tracestate-header: what isn't one
#: would be quoted in the library's log.
_MEMBER: Final = re.compile(
    r"[ \t]*(?:(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~][ \t]*)?"
)
_tracer: ContextVar[Tracer | None] = ContextVar("tracer", default=None)
#: The trace of the request in work, where nobody collects ours.
_callers: ContextVar[str | None] = ContextVar("callers", default=None)

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]


class TraceHeaders(NamedTuple):
    """What a message says of its trace."""

    traceparent: str | None
    tracestate: str | None


NO_TRACE: Final = TraceHeaders(None, None)


class SpanIds(NamedTuple):
    """A place in a trace, in hex digits as they stand on the wire."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStart:
    """What a span is begun with."""

    name: str
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Attributes = field(default_factory=dict)
    #: Where it hangs; None for the span that is current.
    parent: Context | None = None
    links: Sequence[Link] = ()


class ActiveSpan(AbstractContextManager[Span]):
    """A span as long as its context, and what is begun within it hangs below.

    What is raised through it is told by its code or its class alone: messages may quote anything.
    """

    __slots__ = ("_begin", "_span", "_tokens", "_tracer")

    def __init__(self, tracer: Tracer, begin: SpanStart) -> None:
        self._tracer = tracer
        self._begin = begin

    def __enter__(self) -> Span:
        begin = self._begin
        self._span = self._tracer.start_span(
            begin.name,
            context=begin.parent,
            kind=begin.kind,
            attributes=begin.attributes,
            links=begin.links,
        )
        self._tokens = (attach(trace.set_span_in_context(self._span)), _tracer.set(self._tracer))
        return self._span

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        _tracer.reset(self._tokens[1])
        detach(self._tokens[0])
        if error is not None:
            record_failure(self._span, error)
        self._span.end()


class _Following(AbstractContextManager[None]):
    """Names the caller's trace in what is logged within the context."""

    __slots__ = ("_token", "_traceparent")

    def __init__(self, traceparent: str) -> None:
        self._traceparent = traceparent

    def __enter__(self) -> None:
        self._token = _callers.set(self._traceparent)

    def __exit__(self, *_: object) -> None:
        _callers.reset(self._token)


class _Nothing(AbstractContextManager[None]):
    """A context of which nothing comes; the library's takes half as long again."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, _error: object, _where: object) -> None:
        pass


#: The context of what is not traced.
NO_SPAN: Final = _Nothing()


def find_tracer() -> Tracer | None:
    """Return a tracer of the process's provider, or None where it has none that begins spans."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    tracer = provider.get_tracer(SCOPE, version(SCOPE))
    # of a provider that is switched off, too
    return None if isinstance(tracer, trace.NoOpTracer) else tracer


def with_caller_trace(traceparent: str | None) -> AbstractContextManager[None]:
    """Let logs name the caller's trace, where spans of our own are not collected."""
    return _Following(traceparent) if traceparent else NO_SPAN


def is_traced() -> bool:
    """Tell whether spans are begun here."""
    return _tracer.get() is not None


def own_trace() -> TraceHeaders | None:
    """Return the headers of our current span; None if no spans are collected here."""
    return trace_headers() if is_traced() else None


def child_span(
    name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes | None = None
) -> AbstractContextManager[Span | None]:
    """Return a span below the one that is current, if that is ours; else nothing."""
    tracer = _tracer.get()
    if tracer is None:
        return NO_SPAN
    return ActiveSpan(tracer, SpanStart(name=name, kind=kind, attributes=attributes or {}))


def current_span() -> Span | None:
    """Return the span that is current, if it is ours and somebody collects it."""
    if _tracer.get() is None:
        return None
    span = trace.get_current_span()
    return span if span.is_recording() else None


def set_attributes(attributes: Attributes) -> None:
    """Add to what the current span tells."""
    span = current_span()
    if span is not None:
        span.set_attributes(attributes)


def record_failure(span: Span | None, error: BaseException | str) -> None:
    """Mark a span as failed, by the code of the error or the name of its class."""
    if span is None:
        return
    span.set_attribute(ERROR_TYPE, error if isinstance(error, str) else _kind(error))
    span.set_status(Status(StatusCode.ERROR))


def _kind(error: BaseException) -> str:
    """Return an error's code, unless it has none of its own."""
    if isinstance(error, ContextBuilderError) and error.code != ContextBuilderError.code:
        return error.code
    return type(error).__name__


# --- the wire --------------------------------------------------------------------------------


def trace_headers(traceparent: str | None = None, tracestate: str | None = None) -> TraceHeaders:
    """Return what a message says of its trace: our span, else what the caller said."""
    if _tracer.get() is None:
        return TraceHeaders(traceparent, tracestate)
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return TraceHeaders(carrier.get("traceparent"), carrier.get("tracestate"))


def remote_context(traceparent: str | None, tracestate: str | None = None) -> Context:
    """Return the place in a trace that a caller names; what can't be read begins another trace."""
    if traceparent is None:
        return Context()
    if not _TRACEPARENT.match(traceparent):
        log_ignored_header("traceparent")
        return Context()
    said = {"traceparent": traceparent}
    if tracestate is not None:
        if all(map(_MEMBER.fullmatch, tracestate.split(","))):
            said["tracestate"] = tracestate
        else:
            log_ignored_header("tracestate")
    return _W3C.extract(said, Context())


def remote_span(place: Context) -> SpanContext | None:
    """Return the caller's span at such a place, or None."""
    found = trace.get_current_span(place).get_span_context()
    return found if found.is_valid else None


@cache  # once a process: who sends such a thing sends many
def log_ignored_header(key: str) -> None:
    """Tell that callers name their trace in a way that can't be read."""
    log.warning("trace.ignored", key=key)


def current_ids() -> SpanIds | None:
    """Return where in a trace this is: in our span, or below the caller's."""
    if _tracer.get() is not None:
        found = trace.get_current_span().get_span_context()
        return SpanIds(trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id))
    callers = _callers.get()
    read = _TRACEPARENT.match(callers) if callers else None
    return SpanIds(read[1], read[2]) if read else None
