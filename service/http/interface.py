"""The HTTP interface of a worker: endpoints and page, with checks of access."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from service.aio import Admission
from service.builder import ContextBuilder
from service.errors import (
    BusError,
    ContextBuilderError,
    HistoryUnavailableError,
    NotFoundError,
    StoreError,
    did_you_mean,
    shown,
)
from service.http.access import checked
from service.http.endpoint import Services, make_route
from service.http.error_responses import HttpError, http_error_response
from service.http.live import MOST_LISTENERS
from service.http.recent_builds import RecentBuilds
from service.http.routes import ENDPOINTS
from service.http.serving import serving
from service.http.static_files import static_routes
from service.http.telemetry import Observed
from service.ports.bus import Bus
from service.wire.recall import RecallResponse
from service.wire.response import BuildResponse

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """The interface while it is served."""

    address: str
    #: Has to be given the reports of builds that the bus has.
    recent: RecentBuilds


@asynccontextmanager
async def open_http(
    port: int,
    bus: Bus,
    builder: ContextBuilder,
    send: Callable[..., Awaitable[BuildResponse | RecallResponse]],
) -> AsyncIterator[Served]:
    """Serve the interface of a worker; ``send`` sends requests over the bus.

    Raises `ConfigError` if the port is taken.
    """
    settings = builder.settings
    recent = RecentBuilds(size=settings.http.builds, seconds=settings.reports.ttl_seconds)
    services = Services(
        builder=builder,
        recent=recent,
        reports=bus.reports,
        send=send,
        admission=Admission(settings.worker.max_inflight_bytes),
        closed=asyncio.get_running_loop().create_future(),
        listeners=asyncio.Semaphore(MOST_LISTENERS),
    )
    app = make_app(services)
    async with serving(app, settings.http.host, port, section="http") as address:
        log.info("http.listening", address=address, inspector=f"{address}/")
        try:
            yield Served(address, recent)
        finally:
            recent.close()
            services.closed.set_result(None)


def make_app(services: Services) -> ASGIApp:
    """Return the interface as an ASGI application, with the settings of the builder."""
    builder = services.builder
    settings = builder.settings
    # builds may take minutes, and lists must not wait for them; but many lists at once would keep
    # the worker from its own requests
    costly, cheap = (asyncio.Semaphore(settings.http.concurrency) for _ in range(2))
    routes = [
        make_route(endpoint, services, costly if endpoint.costly else cheap)
        for endpoint in ENDPOINTS
    ]
    app = Starlette(
        routes=[*routes, *static_routes()],
        exception_handlers={
            ContextBuilderError: _on_error,
            HTTPException: _on_unknown_route,
            Exception: _on_error,
        },
    )
    # a redirect would repeat the Host header of a stranger
    app.router.redirect_slashes = False
    return Observed(app=checked(app, settings.http), metrics=builder.metrics, tracer=builder.tracer)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, BusError | StoreError):
        # its text may name hosts or statements
        log.warning("http.unavailable", path=request.url.path, error=error.detail)
        public = ContextBuilderError("the bus or the store is unavailable")
        if isinstance(error, StoreError) and error.retryable:
            public = HistoryUnavailableError("the store is unavailable")
        elif error.retryable:
            public = HttpError("bus_unavailable", "the bus is unavailable")
        return http_error_response(public)
    known = error if isinstance(error, ContextBuilderError) else ContextBuilderError()
    return http_error_response(known)


async def _on_unknown_route(request: Request, error: Exception) -> Response:
    """Answer a path that doesn't exist, or not for this method."""
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response = http_error_response(HttpError("method_not_allowed"))
        response.headers.update(error.headers or {})
        return response
    path = request.scope["path"]
    meant = did_you_mean(path, [endpoint.path for endpoint in ENDPOINTS])
    return http_error_response(NotFoundError(f"the path {shown(path)} is unknown{meant}"))
