"""The application: all routes, behind the check of who may ask."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from service.audit.store import Filing
from service.builder import ContextBuilder
from service.errors import BusError, ContextBuilderError, StoreError
from service.http.access import checked
from service.http.building import Building, Send
from service.http.builds import Builds
from service.http.error_responses import MethodNotAllowedError, NotFoundError, error_response
from service.http.handlers import Desk
from service.http.openapi import document
from service.http.pruning import Pruning
from service.http.recent_builds import RecentBuilds
from service.http.route import Slots, route
from service.http.routes import ENDPOINTS
from service.http.telemetry import Observed
from service.http.timeline import Timeline

Handler = Callable[[Request], Awaitable[Response]]

#: Where they are.
FOLDER: Final = Path(__file__).parent / "static"
#: What the path / gives.
INDEX: Final = "index.html"

#: By suffix; a file with another one isn't served.
TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def static_routes(folder: Path = FOLDER) -> list[Route]:
    """Return a route for each file of a folder, as it is now, and one for the page."""
    files = {
        path.relative_to(folder).as_posix(): _read(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }
    page = _serve(files[INDEX]) if INDEX in files else _no_page
    return [Route("/", page), *(Route(f"/{name}", _serve(file)) for name, file in files.items())]


def _serve(file: _File) -> Handler:
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}

    async def serve(request: Request) -> Response:
        if request.headers.get("If-None-Match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers={**headers, "Content-Type": file.media_type})

    return serve


async def _no_page(_request: Request) -> Response:
    raise NotFoundError("there is no page here; /v1/openapi.json describes what there is")


def _read(path: Path) -> _File:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return _File(content=content, media_type=TYPES[path.suffix], etag=f'"{digest}"')


log = structlog.get_logger(__name__)


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
