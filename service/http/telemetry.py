"""Requests over HTTP as they are counted, and as spans: by route, and by no path that was asked."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Final

from opentelemetry.trace import SpanKind, Tracer
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.access import GUARDED
from service.observe.metrics import HttpRequest, Metrics
from service.observe.tracing import (
    ActiveSpan,
    SpanStart,
    current_span,
    record_failure,
    remote_context,
    with_caller_trace,
)

#: Stands for whatever is no method or no route of ours.
OTHER: Final = "other"
#: Stands for the files of the page.
PAGE: Final = "page"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
#: What an answer counts as that never began, as where the caller hung up.
NO_ANSWER: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An application whose requests are counted, timed and traced.

    What they are asked for is not told: paths, queries and headers may name people. So the
    instrumentations that there are won't do, which tell of all these, and of what errors say.
    """

    app: ASGIApp
    metrics: Metrics
    tracer: Tracer | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; its time is that until the answer begins, for some never end."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        began, status = perf_counter(), NO_ANSWER

        def note(found: str) -> None:
            nonlocal status
            status = found
            asked = HttpRequest(route=_route(scope), method=method, status=found)
            self.metrics.requested(asked, perf_counter() - began)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(f"{message['status'] // 100}xx")
                _tell(scope, method, message["status"])
            await send(message)

        headers = Headers(scope=scope)
        asked = [",".join(headers.getlist(key)) or None for key in ("traceparent", "tracestate")]
        with self._span(method, *asked):
            try:
                await self.app(scope, receive, noting)
            finally:
                if status == NO_ANSWER:
                    note(NO_ANSWER)

    def _span(
        self, method: str, traceparent: str | None, tracestate: str | None
    ) -> AbstractContextManager[object]:
        if self.tracer is None:
            return with_caller_trace(traceparent)
        beginning = SpanStart(
            name=method,
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method.replace(OTHER, "_OTHER")},
            parent=remote_context(traceparent, tracestate),
        )
        return ActiveSpan(self.tracer, beginning)


def _route(scope: Scope) -> str:
    """Return the template of the path that was asked for: there are few."""
    route = scope.get("route")
    path = route.path if isinstance(route, Route) else OTHER
    return path if path == OTHER or path.startswith(GUARDED) else PAGE


def _tell(scope: Scope, method: str, status: int) -> None:
    span = current_span()
    if span is None:
        return
    route = _route(scope)
    if route != OTHER:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        record_failure(span, str(status))
