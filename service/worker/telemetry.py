"""Spans of messages on the bus, and the log line and metrics of a build."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final, Protocol

import structlog
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from formatters.structure import BUILT_IN_TAGS
from service.build.account import Built
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
from service.wire.protocol import REQUESTS_GROUP, Topics
from service.wire.request import Envelope

REQUEST: Final = Topics.CONTEXT_BUILD_REQUEST.value

_TRACE_KEYS: Final = ("traceparent", "tracestate")


class Received(Protocol):
    """A decoded delivery."""

    @property
    def delivery(self) -> Delivery:
        """Return the delivery."""
        ...

    @property
    def envelope(self) -> Envelope:
        """Return its envelope."""
        ...


class BusSpans:
    """Starts the spans of a worker or a client; without a tracer it starts none."""

    def __init__(self, tracer: Tracer | None, settings: BusSettings | None = None) -> None:
        self._tracer = tracer
        bus = settings or BusSettings()
        self._reply_prefixes = bus.reply_prefixes
        url = bus.url and bus.url.get_secret_value()
        #: OpenTelemetry's conventions have no other name for servers that speak Redis's protocol.
        self._system = "memory" if url and url.startswith("memory:") else "redis"

    # --- workers ---------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the time in nanoseconds, for `record_receipt`; 0 if no spans are collected."""
        return time.time_ns() if self._tracer else 0

    def record_receipt(self, batch: Sequence[Received], received_at: int) -> None:
        """Record the receipt of a batch as one span, linked to the trace of each request."""
        if self._tracer is None or not batch:
            return
        attributes = {
            **self._messaging("receive"),
            "messaging.batch.message_count": len(batch),
            "messaging.destination.name": batch[0].delivery.source,
        }
        links = [link for delivery in batch for link in _links(delivery.envelope)]
        self._tracer.start_span(
            f"receive {REQUEST}",
            context=remote_context(None),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=received_at,
        ).end()

    def process_span(self, received: Received) -> AbstractContextManager[Span | None]:
        """Return the span of processing a delivery, a child of the sender's span."""
        metadata = received.envelope.metadata
        if self._tracer is None:
            return with_caller_trace(metadata.traceparent)
        attributes: dict[str, Any] = {
            **self._messaging("process"),
            **_message_attributes(received.envelope.id, metadata.correlation_id),
            "messaging.destination.name": received.delivery.source,
            "messaging.message.envelope.size": len(received.delivery.payload),
            "contextbuilder.attempt": received.delivery.attempt,
        }
        start = SpanStart(
            name=f"process {REQUEST}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            parent=remote_context(*metadata.trace),
            links=_links(received.envelope),
        )
        return ActiveSpan(self._tracer, start)

    def describe_sending(self, answer: Answer) -> None:
        """Describe the sending of an answer in the current span."""
        span = current_span()
        if span is None:
            return
        # reply addresses are unbounded, but names of spans must be few
        matching = (p for p in self._reply_prefixes if answer.reply_to.startswith(p))
        prefix = next(matching, None)
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

    def request_span(self, request: Mapping[str, Any]) -> AbstractContextManager[Span | None]:
        """Return the span of a request and the wait for its answer.

        Its parent is the span in the headers of the request, or else the current one.
        """
        if self._tracer is None:
            return NO_SPAN
        headers = _trace_headers(request)
        context = remote_context(headers.get("traceparent"), headers.get("tracestate"))
        parent = context if remote_span(context) else None
        start = SpanStart(name="request context", kind=SpanKind.CLIENT, parent=parent)
        return ActiveSpan(self._tracer, start)

    def send_span(self, request: Mapping[str, Any]) -> AbstractContextManager[Span | None]:
        """Return the span of sending a request, the parent of the worker's span."""
        if self._tracer is None:
            return NO_SPAN
        correlation = (request.get("metadata") or {}).get("correlation_id")
        attributes = {
            **self._messaging("send"),
            **_message_attributes(str(request["id"]), correlation),
            "messaging.destination.name": REQUEST,
        }
        name = f"send {REQUEST}"
        return ActiveSpan(
            self._tracer, SpanStart(name=name, kind=SpanKind.PRODUCER, attributes=attributes)
        )

    def with_trace_headers(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request with the headers of the current span."""
        if self._tracer is None:
            return request
        headers = {k: v for k, v in trace_headers()._asdict().items() if v is not None}
        kept = {k: v for k, v in (request.get("metadata") or {}).items() if k not in _TRACE_KEYS}
        return {**request, "metadata": {**kept, **headers}}

    def _messaging(self, operation: str) -> dict[str, Any]:
        return {
            "messaging.system": self._system,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            **({} if operation == "send" else {"messaging.consumer.group.name": REQUESTS_GROUP}),
        }


def _message_attributes(message_id: str, correlation_id: object) -> Attributes:
    attributes = {"messaging.message.id": message_id}
    if isinstance(correlation_id, str):  # a client's request isn't validated yet
        attributes["messaging.message.conversation_id"] = correlation_id
    return attributes


def _links(envelope: Envelope) -> list[Link]:
    span = remote_span(remote_context(*envelope.metadata.trace))
    return [Link(span)] if span else []


def _trace_headers(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace headers of a request that isn't validated yet."""
    metadata = request.get("metadata") or {}
    headers = {key: metadata.get(key) for key in _TRACE_KEYS}
    return {key: value for key, value in headers.items() if isinstance(value, str)}


#: Named here, because structlog would otherwise look the name up for each line.
log = structlog.get_logger(__name__)

#: The metric label of all custom blocks, whose tags are unbounded.
CUSTOM: Final = "custom"
#: The metric label of the array of tools.
TOOLS: Final = "tools"


def record_build(
    delivery: Delivery, answered: Answered, began: datetime, ended: datetime, metrics: Metrics
) -> None:
    """Write the log line of a build, and record its metrics."""
    response = answered.response
    if answered.built:
        metrics.record_context(context_sizes(answered.built))
    content, seconds = response.content, (ended - began).total_seconds()
    # clocks may be set back in between
    metrics.record_duration("queue", max(0.0, (began - delivery.received_at).total_seconds()))
    metrics.record_duration("build", max(0.0, seconds))
    fields = {
        "request_id": response.metadata.request_id,
        "run_id": response.run_id,
        "owner_key": response.owner_key,
        "attempt": delivery.attempt,
        "milliseconds": round(seconds * 1000, 1),
    }
    if content.status == "error":
        # pointers only, since details may quote the request
        pointers = [problem["pointer"] for problem in content.error.errors]
        record_failure(current_span(), content.error.code)
        log.warning("context.refused", **fields, code=content.error.code, places=pointers)
        return
    log.info(
        "context.built",
        **fields,
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
    """Return the sizes of a context, under bounded labels."""
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
