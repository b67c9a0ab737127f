"""The files of the page, read once when the worker starts."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER: Final = Path(__file__).parent / "static"
#: The file that the path / returns.
INDEX: Final = "index.html"

#: Media types by suffix, whatever the system's tables say; other files aren't served.
MEDIA_TYPES: Final[Mapping[str, str]] = {
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

_Serve = Callable[[Request], Awaitable[Response]]


def static_routes(folder: Path = FOLDER) -> list[Route]:
    """Return a route for each file of a folder, and one for the page itself."""
    files = {
        path.relative_to(folder).as_posix(): _serve(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in MEDIA_TYPES
    }
    return [Route("/", files[INDEX]), *(Route(f"/{name}", serve) for name, serve in files.items())]


def _serve(path: Path) -> _Serve:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    media_type = MEDIA_TYPES[path.suffix]

    async def serve(request: Request) -> Response:
        if _names(request.headers.get("If-None-Match", ""), etag):
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "Content-Type": media_type})

    return serve


def _names(tags: str, etag: str) -> bool:
    """Return whether a list of tags has one; proxies that compress files mark tags as weak."""
    return etag in {tag.strip().removeprefix("W/") for tag in tags.split(",")}
