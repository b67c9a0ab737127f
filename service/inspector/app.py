"""The application: all routes, behind the check of who may ask."""

import json
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from service.builder import ContextBuilder
from service.errors import BusError, ContextBuilderError, StoreError
from service.filing import Filing
from service.inspector.access import checked
from service.inspector.building import Building, Send
from service.inspector.builds import Builds
from service.inspector.desk import Desk
from service.inspector.endpoint import Slots, route
from service.inspector.endpoints import ENDPOINTS
from service.inspector.errors import MethodNotAllowedError, NotFoundError, error_response
from service.inspector.observing import Observed
from service.inspector.openapi import document
from service.inspector.pruning import Pruning
from service.inspector.recent_builds import RecentBuilds
from service.inspector.static_files import static_routes
from service.inspector.timeline import Timeline

log = structlog.get_logger()


def make_app(builder: ContextBuilder, recent: RecentBuilds, filing: Filing, send: Send) -> ASGIApp:
    """Return the application over a builder, with its settings.

    ``filing`` finds manifests on the bus, ``send`` sends requests over it.
    """
    settings = builder.settings
    shows = settings.http.content
    desk = Desk(
        settings=settings,
        recent=recent,
        builds=Builds(recent, filing, builder, shows),
        pruning=Pruning(builder, shows),
        timeline=Timeline(builder, shows),
        building=Building(send, settings, builder.clock),
        description=json.dumps(document(ENDPOINTS)).encode(),
    )
    most = settings.bus.max_payload_bytes
    # builds may take minutes, and a list must not wait for them; but many lists at once would
    # keep the worker from its own requests
    work, looks = (Slots(settings.http.concurrency) for _ in range(2))
    app = Starlette(
        routes=[
            *(route(each, desk, work if each.costly else looks, most) for each in ENDPOINTS),
            *static_routes(),
        ],
        exception_handlers={
            ContextBuilderError: _refused,
            HTTPException: _unknown,
            Exception: _refused,
        },
    )
    # a redirect would repeat the host that a stranger named
    app.router.redirect_slashes = False
    return Observed(app=checked(app, settings.http), metrics=builder.metrics, tracer=builder.tracer)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, BusError | StoreError):
        # it may name hosts, or what a driver was asked
        log.warning("http.unavailable", path=request.url.path, error=error.detail)
        told = ContextBuilderError("bus or store can't be used")
        told.retryable = error.retryable
        return error_response(told)
    if isinstance(error, ContextBuilderError):
        return error_response(error)
    return error_response(ContextBuilderError())


async def _unknown(_request: Request, error: Exception) -> Response:
    """Say of a path that there is none, or none for this method."""
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refused = error_response(MethodNotAllowedError())
        refused.headers.update(error.headers or {})
        return refused
    return error_response(NotFoundError("there is nothing at this path"))
