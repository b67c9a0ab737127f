"""Spans of messages on the bus, of workers and of clients."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from opentelemetry.trace import Link, Span, SpanKind, Tracer

from service.config.settings import BusSettings
from service.observe.tracing import (
    Attributes,
    active_span,
    current_span,
    remote_context,
    remote_span,
    trace_headers,
)
from service.ports.bus import Answer, Delivery
from service.wire.protocol import REQUESTS_GROUP, Topics
from service.wire.request import Envelope

REQUEST: Final = Topics.CONTEXT_BUILD_REQUEST.value

_TRACE_KEYS: Final = ("traceparent", "tracestate")


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

    def record_receipt(self, source: str, batch: Sequence[Envelope], received_at: int) -> None:
        """Record the receipt of a batch as one span, linked to the trace of each request.

        ``received_at`` is the time of receipt in nanoseconds.
        """
        if self._tracer is None:
            return
        attributes = {
            **self._messaging("receive"),
            "messaging.batch.message_count": len(batch),
            "messaging.destination.name": source,
        }
        links = [link for envelope in batch for link in _links(envelope)]
        self._tracer.start_span(
            f"receive {REQUEST}",
            context=remote_context(None),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=received_at,
        ).end()

    def process_span(
        self, delivery: Delivery, envelope: Envelope
    ) -> AbstractContextManager[Span | None]:
        """Return the span of processing a delivery, a child of the sender's span."""
        metadata = envelope.metadata
        attributes: dict[str, Any] = {
            **self._messaging("process"),
            **_message_attributes(envelope.id, metadata.correlation_id),
            "messaging.destination.name": delivery.source,
            "messaging.message.envelope.size": len(delivery.payload),
            "contextbuilder.attempt": delivery.attempt,
        }
        return active_span(
            self._tracer,
            f"process {REQUEST}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            context=remote_context(*metadata.trace),
            links=_links(envelope),
        )

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
        metadata = request.get("metadata") or {}
        # the request isn't validated yet
        headers = (metadata.get(key) for key in _TRACE_KEYS)
        context = remote_context(*(value if isinstance(value, str) else None for value in headers))
        parent = context if remote_span(context) else None
        return active_span(self._tracer, "request context", kind=SpanKind.CLIENT, context=parent)

    def send_span(self, request: Mapping[str, Any]) -> AbstractContextManager[Span | None]:
        """Return the span of sending a request, the parent of the worker's span."""
        correlation = (request.get("metadata") or {}).get("correlation_id")
        attributes = {
            **self._messaging("send"),
            **_message_attributes(str(request["id"]), correlation),
            "messaging.destination.name": REQUEST,
        }
        return active_span(
            self._tracer, f"send {REQUEST}", kind=SpanKind.PRODUCER, attributes=attributes
        )

    def with_trace_headers(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request with the headers of the current span, if any."""
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
