"""Metrics, logs and spans of requests over HTTP."""

from dataclasses import dataclass, field

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from service.http.telemetry import Observed
from service.observe.tracing import TraceHeaders, trace_headers
from tests.support import Noted
from tests.tracing import Collected

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Site:
    """An application with a route, a file and a route that fails, and its telemetry."""

    noted: Noted = field(default_factory=Noted)
    collected: Collected = field(default_factory=Collected)
    #: The headers that a request over the bus would carry, as seen from within a route.
    traces: list[TraceHeaders] = field(default_factory=list)

    async def asked(
        self, path: str, method: str = "GET", *, traced: bool = True, **headers: str
    ) -> list[Message]:
        """Ask for a path, and return what is answered."""
        answered: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            answered.append(message)

        tracer = self.collected.tracer if traced else None
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"before=Anas+secret",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        app = Observed(app=self._app(), metrics=self.noted, tracer=tracer)
        await app(scope, receive, send)
        return answered

    def _app(self) -> ASGIApp:
        async def show(_request: Request) -> Response:
            self.traces.append(trace_headers())
            return Response("ok")

        async def broken(_request: Request) -> Response:
            raise ValueError("what Ana said")

        routes = [Route("/v1/builds/{id}", show), Route("/app.js", show), Route("/v1/x", broken)]
        return Starlette(routes=routes)


@pytest.mark.parametrize(
    ("method", "path", "reported"),
    [
        ("GET", "/v1/builds/bld_of_ana", "GET /v1/builds/{id} 2xx"),
        ("POST", "/v1/builds/bld_of_ana", "POST /v1/builds/{id} 4xx"),
        ("GET", "/app.js", "GET page 2xx"),
        ("GET", "/ana", "GET other 4xx"),
        ("BREW", "/ana", "other other 4xx"),
    ],
)
async def test_requests_are_counted_by_route(method: str, path: str, reported: str) -> None:
    """In words of ours: who makes up paths and methods makes no series of them."""
    site = Site()
    await site.asked(path, method)

    assert site.noted.counted == [reported]


async def test_a_request_is_a_span_below_the_callers() -> None:
    """It names the route and the status, and neither path nor query."""
    site = Site()
    await site.asked("/v1/builds/bld_of_ana", traceparent=CALLER, tracestate="a=1")
    (span,) = site.collected.spans

    assert (span.name, span.kind.name) == ("GET /v1/builds/{id}", "SERVER")
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/v1/builds/{id}",
        "http.response.status_code": 200,
    }
    assert site.collected.place(span) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    inner = site.traces[0].traceparent or ""
    assert inner.split("-")[1:3] == list(site.collected.ids(span))
    assert site.traces[0].tracestate == "a=1"


async def test_a_fault_is_counted_and_reported_without_words() -> None:
    """What the error said may be what somebody said."""
    site = Site()
    with pytest.raises(ValueError, match="Ana"):
        await site.asked("/v1/x")
    (span,) = site.collected.spans

    assert site.noted.counted == ["GET /v1/x 5xx"]
    assert (span.status.status_code.name, span.status.description) == ("ERROR", None)
    assert "Ana" not in span.to_json()


@pytest.mark.parametrize("named", ["", "garbage", f"{CALLER},{CALLER}", "00-" + "a" * 5000])
async def test_a_trace_that_is_none_is_passed_over(named: str) -> None:
    """The request is answered all the same, in a trace of its own."""
    site = Site()
    answered = await site.asked("/v1/builds/b", traceparent=named)
    (span,) = site.collected.spans

    assert answered[0]["status"] == 200
    assert site.collected.place(span) is None


async def test_a_caller_who_hangs_up_is_counted() -> None:
    """With no status: no answer began."""

    async def gone(*_: object) -> None:
        raise ConnectionError("gone")

    noted, scope = Noted(), {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(ConnectionError):
        await Observed(app=gone, metrics=noted, tracer=None)(scope, gone, gone)  # type: ignore[arg-type] # it asks for nothing

    assert noted.counted == ["GET other none"]


LEFT: Message = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("length", "messages", "status"),
    [
        (None, [LEFT], "none"),
        (b"2", [{"type": "http.request", "body": b"{}"}, LEFT], "none"),
        (b"9", [], "2xx"),
    ],
)
async def test_a_caller_who_leaves_during_the_work_is_counted_as_one_without_an_answer(
    length: bytes | None, messages: list[Message], status: str
) -> None:
    """What was answered, nobody read; a body that is not read is not asked for."""
    received = iter(messages)

    async def receive() -> Message:
        return next(received)

    async def send(_message: Message) -> None:
        """Send to nobody, as a server does."""

    async def work(request: Request) -> Response:
        return Response(await request.body() if len(messages) > 1 else b"")

    noted = Noted()
    app = Starlette(routes=[Route("/v1/build", work, methods=["POST"])])
    headers = [(b"content-length", length)] if length else []
    scope = {"type": "http", "method": "POST", "path": "/v1/build", "headers": headers}
    await Observed(app=app, metrics=noted, tracer=None)(scope, receive, send)

    assert noted.counted == [f"POST /v1/build {status}"]


async def test_without_a_tracer_nothing_is_begun() -> None:
    """And what is carried on is what the route adds itself."""
    site = Site()
    await site.asked("/v1/builds/b", traced=False, traceparent=CALLER)

    assert (site.collected.spans, site.traces) == ([], [TraceHeaders(None, None)])
