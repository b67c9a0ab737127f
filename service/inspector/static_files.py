"""The files of the page, read once and served from memory: no path leads anywhere else."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.inspector.errors import NotFoundError

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
