"""Metrics and spans of HTTP requests, labelled by route and never by the path itself."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Final

from opentelemetry.trace import SpanKind, Tracer
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.access import GUARDED
from service.observe.metrics import Metrics
from service.observe.tracing import (
    active_span,
    current_span,
    record_failure,
    remote_context,
    with_caller_trace,
)

#: The label of an unknown method or route.
OTHER: Final = "other"
#: The label of the files of the page.
PAGE: Final = "page"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
#: The status of a request without a response, since the caller disconnected.
NO_ANSWER: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An application whose requests are counted, timed and traced.

    Paths, queries, headers and error texts are not recorded, since they may name people. The
    instrumentations of OpenTelemetry record all of these.
    """

    app: ASGIApp
    metrics: Metrics
    tracer: Tracer | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Its time is that until the response begins, since some never end."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        headers, began, status = Headers(scope=scope), perf_counter(), ""
        is_read = not {"content-length", "transfer-encoding"}.intersection(headers)

        def count(result: str) -> None:
            nonlocal status
            status = result
            seconds = perf_counter() - began
            self.metrics.record_http_request(_route_label(scope), method, result, seconds)

        async def receive_noted() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = not message.get("more_body", False)
            return message

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # only once the body is read: to look would request one that is refused unread
                left = is_read and await Request(scope, receive).is_disconnected()
                count(NO_ANSWER if left else f"{message['status'] // 100}xx")
                _set_response(scope, method, message["status"])
            await send(message)

        trace = [",".join(headers.getlist(key)) or None for key in ("traceparent", "tracestate")]
        with self._span(method, *trace):
            try:
                await self.app(scope, receive_noted, send_counted)
            finally:
                if not status:
                    count(NO_ANSWER)

    def _span(
        self, method: str, traceparent: str | None, tracestate: str | None
    ) -> AbstractContextManager[object]:
        if self.tracer is None:
            return with_caller_trace(traceparent)
        return active_span(
            self.tracer,
            method,
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method.replace(OTHER, "_OTHER")},
            context=remote_context(traceparent, tracestate),
        )


def _route_label(scope: Scope) -> str:
    """Return the template of the requested path: there are few."""
    route = scope.get("route")
    path = route.path if isinstance(route, Route) else OTHER
    return path if path == OTHER or path.startswith(GUARDED) else PAGE


def _set_response(scope: Scope, method: str, status: int) -> None:
    """Add route and status to the current span."""
    span = current_span()
    if span is None:
        return
    route = _route_label(scope)
    if route != OTHER:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        record_failure(span, str(status))
