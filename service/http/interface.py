"""The HTTP interface of a worker: endpoints and page behind the checks of access."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from service.audit.reports import BuildReports
from service.builder import ContextBuilder
from service.errors import BusError, ContextBuilderError, StoreError
from service.http.access import checked
from service.http.builds import Builds
from service.http.endpoint import Slots, make_route
from service.http.error_responses import MethodNotAllowedError, NotFoundError, http_error_response
from service.http.handlers import Handlers
from service.http.manual_pruning import Pruning
from service.http.openapi import document
from service.http.recent_builds import RecentBuilds
from service.http.routes import ENDPOINTS
from service.http.server import serving
from service.http.static_files import static_routes
from service.http.submit import Send, Submitter
from service.http.telemetry import Observed
from service.http.timeline import Timeline
from service.ports.bus import Bus

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """The interface while it is served."""

    address: str
    #: Has to be given the reports of builds that the bus has.
    recent: RecentBuilds


@asynccontextmanager
async def open_http(
    port: int, bus: Bus, builder: ContextBuilder, send: Send
) -> AsyncIterator[Served]:
    """Serve the interface of a worker; ``send`` sends requests over the bus.

    Raises `ConfigError` if the port is taken.
    """
    settings = builder.settings
    recent = RecentBuilds(size=settings.http.builds, seconds=settings.reports.ttl_seconds)
    reports = BuildReports(bus.reports, settings, builder.clock)
    submitter = Submitter(send, settings, builder.clock)
    app = make_app(builder, recent, reports, submitter)
    async with serving(app, settings.http.host, port, section="http") as address:
        log.info("http.listening", address=address)
        try:
            yield Served(address, recent)
        finally:
            recent.close()
            submitter.close()


def make_app(
    builder: ContextBuilder, recent: RecentBuilds, reports: BuildReports, submitter: Submitter
) -> ASGIApp:
    """Return the interface as an ASGI application, with the settings of the builder."""
    settings = builder.settings
    content = settings.http.content
    handlers = Handlers(
        settings=settings,
        recent=recent,
        builds=Builds(recent, reports, builder, content),
        pruning=Pruning(builder, content),
        timeline=Timeline(builder, content),
        submitter=submitter,
        description=json.dumps(document(ENDPOINTS)).encode(),
    )
    # builds may take minutes, and lists must not wait for them; but many lists at once would keep
    # the worker from its own requests
    costly, cheap = (Slots(settings.http.concurrency) for _ in range(2))
    most = settings.bus.max_payload_bytes
    routes = [
        make_route(endpoint, handlers, costly if endpoint.costly else cheap, most)
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
        public.retryable = error.retryable
        return http_error_response(public)
    if isinstance(error, ContextBuilderError):
        return http_error_response(error)
    return http_error_response(ContextBuilderError())


async def _on_unknown_route(_request: Request, error: Exception) -> Response:
    """Answer a path that doesn't exist, or not for this method."""
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response = http_error_response(MethodNotAllowedError())
        response.headers.update(error.headers or {})
        return response
    return http_error_response(NotFoundError("nothing is at this path"))
