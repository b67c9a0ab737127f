"""What a build leaves behind in the log and in the metrics."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final, Protocol

import structlog
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from formatters.structure import BUILT_IN_TAGS
from service.build.report import Built
from service.builder import Answered
from service.config.settings import BusSettings
from service.observe.metrics import NO_MODEL, OTHER_MODEL, Metrics, Sizes
from service.observe.tracing import (
    NO_SPAN,
    ActiveSpan,
    Attributes,
    SpanStart,
    current_span,
    record_failure,
    remote_context,
    remote_span,
    trace_headers,
    with_caller_trace,
)
from service.ports.bus import Answer
from service.ports.stream import Delivery
from service.wire.protocol import REQUESTS_GROUP, Envelope, Topics

REQUEST: Final = Topics.CONTEXT_BUILD_REQUEST.value

_TRACE_KEYS: Final = ("traceparent", "tracestate")


class Received(Protocol):
    """A delivery, read."""

    @property
    def delivery(self) -> Delivery:
        """What was delivered."""
        ...

    @property
    def envelope(self) -> Envelope:
        """What is known of its sender."""
        ...


class BusSpans:
    """Begins the spans of a worker, or of a client; without a tracer it begins none."""

    def __init__(self, tracer: Tracer | None, settings: BusSettings | None = None) -> None:
        self._tracer = tracer
        bus = settings or BusSettings()
        self._reply_prefixes = bus.reply_prefixes
        url = bus.url and bus.url.get_secret_value()
        #: The conventions know no name for what speaks Redis' protocol.
        self._system = "memory" if url and url.startswith("memory:") else "redis"

    # --- workers ---------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the time in nanoseconds, for `receive`; 0 if no spans are collected."""
        return time.time_ns() if self._tracer else 0

    def receive(self, batch: Sequence[Received], received_at: int) -> None:
        """Record the receipt of a batch as one span, linked to the trace of each request."""
        if self._tracer is None or not batch:
            return
        attributes = {
            **self._messaging("receive"),
            "messaging.batch.message_count": len(batch),
            "messaging.destination.name": batch[0].delivery.source,
        }
        links = [link for each in batch for link in _links(each.envelope)]
        self._tracer.start_span(
            f"receive {REQUEST}",
            context=remote_context(None),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=received_at,
        ).end()

    def process(self, one: Received) -> AbstractContextManager[Span | None]:
        """Return the span of a delivery at work, below the span that the request names."""
        asked = one.envelope.metadata
        if self._tracer is None:
            return with_caller_trace(asked.traceparent)
        attributes: dict[str, Any] = {
            **self._messaging("process"),
            **_of_message(one.envelope.id, asked.correlation_id),
            "messaging.destination.name": one.delivery.source,
            "messaging.message.envelope.size": len(one.delivery.payload),
            "contextbuilder.attempt": one.delivery.attempt,
        }
        place = remote_context(asked.traceparent, asked.tracestate)
        beginning = SpanStart(
            name=f"process {REQUEST}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            parent=place,
            links=_links(one.envelope),
        )
        return ActiveSpan(self._tracer, beginning)

    def sends(self, answer: Answer) -> None:
        """Say of the current span that it sends an answer."""
        span = current_span()
        if span is None:
            return
        # the names of replies are many: those of spans must be few
        prefixes = (each for each in self._reply_prefixes if answer.reply_to.startswith(each))
        prefix = next(prefixes, None)
        template = answer.reply_to if prefix is None else f"{prefix}*"
        span.update_name(f"send {template}")
        span.set_attributes(
            {
                **self._messaging("send"),
                "messaging.destination.name": answer.reply_to,
                "messaging.destination.template": template,
                "messaging.destination.temporary": prefix is not None,
                "messaging.message.envelope.size": len(answer.response),
                "contextbuilder.reply.kind": answer.reply_kind,
            }
        )

    # --- clients ---------------------------------------------------------------------------------

    def request(self, request: Mapping[str, Any]) -> AbstractContextManager[Span | None]:
        """Return the span of a request and the wait for its answer.

        It hangs below the span that the request names, else below the one that is current.
        """
        if self._tracer is None:
            return NO_SPAN
        said = _said(request)
        place = remote_context(said.get("traceparent"), said.get("tracestate"))
        parent = place if remote_span(place) else None
        beginning = SpanStart(name="request context", kind=SpanKind.CLIENT, parent=parent)
        return ActiveSpan(self._tracer, beginning)

    def send(self, request: Mapping[str, Any]) -> AbstractContextManager[Span | None]:
        """Return the span of sending a request, which workers hang theirs below."""
        if self._tracer is None:
            return NO_SPAN
        correlation = (request.get("metadata") or {}).get("correlation_id")
        attributes = {
            **self._messaging("send"),
            **_of_message(str(request["id"]), correlation),
            "messaging.destination.name": REQUEST,
        }
        name = f"send {REQUEST}"
        return ActiveSpan(
            self._tracer, SpanStart(name=name, kind=SpanKind.PRODUCER, attributes=attributes)
        )

    def traced(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request that names the current span as what led to it."""
        if self._tracer is None:
            return request
        named = {
            key: value for key, value in trace_headers()._asdict().items() if value is not None
        }
        kept = {k: v for k, v in (request.get("metadata") or {}).items() if k not in _TRACE_KEYS}
        return {**request, "metadata": {**kept, **named}}

    def _messaging(self, operation: str) -> dict[str, Any]:
        return {
            "messaging.system": self._system,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            **({} if operation == "send" else {"messaging.consumer.group.name": REQUESTS_GROUP}),
        }


def _of_message(message_id: str, correlation_id: object) -> Attributes:
    told = {"messaging.message.id": message_id}
    if isinstance(correlation_id, str):  # a client's may be anything yet
        told["messaging.message.conversation_id"] = correlation_id
    return told


def _links(envelope: Envelope) -> list[Link]:
    asked = envelope.metadata
    span = remote_span(remote_context(asked.traceparent, asked.tracestate))
    return [Link(span)] if span else []


def _said(request: Mapping[str, Any]) -> dict[str, str]:
    """Return what a request that nobody has read says of its trace."""
    said = request.get("metadata") or {}
    found = {key: said.get(key) for key in _TRACE_KEYS}
    return {key: value for key, value in found.items() if isinstance(value, str)}


#: Named, so that the name need not be looked for with each answer.
log = structlog.get_logger(__name__)

#: How metrics name every block that a request brought along: its tag is a stranger's.
CUSTOM: Final = "custom"
#: How they name the array of tools, which is no block.
TOOLS: Final = "tools"


def record_build(
    delivery: Delivery, answered: Answered, began: datetime, ended: datetime, metrics: Metrics
) -> None:
    """Write the one line that a build leaves in the log, and note what it took."""
    response = answered.response
    if answered.built:
        metrics.built(context_sizes(answered.built))
    content, seconds = response.content, (ended - began).total_seconds()
    # with clocks that are set meanwhile, time may run backwards
    metrics.took("queue", max(0.0, (began - delivery.received_at).total_seconds()))
    metrics.took("build", max(0.0, seconds))
    told = {
        "request_id": response.metadata.request_id,
        "run_id": response.run_id,
        "owner_key": response.owner_key,
        "attempt": delivery.attempt,
        "milliseconds": round(seconds * 1000, 1),
    }
    if content.status == "error":
        # places, not details: those may quote the request
        places = [problem["pointer"] for problem in content.error.errors]
        record_failure(current_span(), content.error.code)
        log.warning("context.refused", **told, code=content.error.code, places=places)
        return
    log.info(
        "context.built",
        **told,
        build_id=content.build_id,
        model=content.usage.model,
        total=content.usage.total,
        available=content.usage.available,
        blocks=content.usage.blocks,
        kept=content.kept,
        dropped=content.dropped,
        warnings=[warning.code for warning in content.warnings],
    )


def context_sizes(built: Built) -> Sizes:
    """Return what a context came to, in labels of ours."""
    fitted, content = built.fitted, built.content
    plan = built.plan
    return Sizes(
        model=plan.known_model or (OTHER_MODEL if plan.model else NO_MODEL),
        blocks=[
            (TOOLS, fitted.tools),
            *((_label(tag), tokens) for tag, tokens in fitted.tokens.items()),
        ],
        utilization=content.usage.utilization,
        yielded=[(_label(block.tag), block.code) for block in fitted.reduced_blocks],
        strategy=built.plan.strategy.name,
        saved=max(0, fitted.history.outcome.saved) if fitted.history else 0,
    )


def _label(tag: str) -> str:
    return tag if tag in BUILT_IN_TAGS else CUSTOM
