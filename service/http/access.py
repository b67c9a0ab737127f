"""Access checks: the Host header, the origin of the page, the token; and security headers."""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.config.endpoints import HttpSettings, bracketed, is_loopback
from service.errors import ContextBuilderError
from service.http.endpoint import OWNER_HEADER
from service.http.error_responses import HttpError, http_error_response

#: Names of a loopback address.
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
#: ``Sec-Fetch-Site`` of a request from our own page, or typed by a person.
_OWN_SITES: Final = frozenset({"same-origin", "none"})
#: The paths that need the token and are closed to other pages. The files of the page hold no data,
#: and any page may link to them.
GUARDED: Final = ("/v1/", "/version")

#: On every response: only our own files are loaded, run or connected to; no page may frame ours.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

#: Headers that pages of allowed origins may send and read, besides those that any page may.
_ALLOWED_HEADERS: Final = ("Authorization", "Content-Type", OWNER_HEADER, "Last-Event-ID")
_EXPOSED_HEADERS: Final = ("Retry-After", "WWW-Authenticate")


def checked(app: ASGIApp, settings: HttpSettings) -> ASGIApp:
    """Return the application with all checks in front.

    The origin is checked before the token, since browsers send preflight requests without one. CORS
    is between the two, so that allowed pages can read refusals as well.
    """
    guarded: ASGIApp = Checked(app=app, check=partial(check_token, settings))
    if settings.allowed_origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=settings.allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=_EXPOSED_HEADERS,
            allow_private_network=True,
        )
    return with_headers(Checked(app=guarded, check=partial(check_origin, settings)))


def with_headers(app: ASGIApp) -> ASGIApp:
    """Return an application that adds `HEADERS` to every response."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An application with a check of headers and path in front, which raises an error to refuse."""

    app: ASGIApp
    check: Callable[[Headers, str], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        try:
            self.check(Headers(scope=scope), scope["path"])
        except ContextBuilderError as error:
            await http_error_response(error)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def check_origin(settings: HttpSettings, headers: Headers, path: str) -> None:
    """Check the Host header and the origin of a request.

    Raises `HttpError`: ``misdirected`` if the host isn't served here, as when a foreign name was
    bound to this address (DNS rebinding), ``forbidden`` if the origin of the page isn't allowed.
    """
    host = headers.get("Host", "")
    if not _serves(settings, host):
        raise HttpError("misdirected", "this host is not served here; see http.allowed_hosts")
    if not path.startswith(GUARDED):
        return
    origin = headers.get("Origin")
    if origin in settings.allowed_origins:
        return
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise HttpError("forbidden", "the origin of the page is not in http.allowed_origins")
    if headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
        raise HttpError("forbidden", "requests from pages of other sites are not allowed")


def _serves(settings: HttpSettings, host: str) -> bool:
    """Return whether a host is ours; beyond loopback, any is, unless some are listed."""
    name, colon, port = host.rpartition(":")
    name = (name if colon and port.isdecimal() else host).lower()
    allowed = {*map(str.lower, settings.allowed_hosts)}
    if not is_loopback(settings.host):
        return not allowed or name in allowed
    return name in {*_LOCAL, *allowed, bracketed(settings.host)}


def check_token(settings: HttpSettings, headers: Headers, path: str) -> None:
    """Check the token of a request; raises `HttpError`, ``unauthorized``."""
    if settings.token is None or not path.startswith(GUARDED):
        return
    values = headers.getlist("Authorization")
    scheme, _, secret = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    token = settings.token.get_secret_value()
    same = hmac.compare_digest(secret.strip().encode(), token.encode())
    if not same or scheme.lower() != "bearer":
        raise HttpError("unauthorized", "the header Authorization must be: Bearer, and the token")
