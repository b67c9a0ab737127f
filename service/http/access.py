"""Access checks: the Host header, the origin of the page, the token; and security headers."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.config.endpoints import HttpSettings, bracketed, is_loopback
from service.errors import ContextBuilderError
from service.http.endpoint import OWNER_HEADER
from service.http.error_responses import (
    MisdirectedError,
    RefusedError,
    UnauthorizedError,
    http_error_response,
)

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
    """Return an application behind all checks.

    The origin is checked before the token, since browsers send preflight requests without one. CORS
    is between the two, so that allowed pages can read refusals as well.
    """
    guarded: ASGIApp = TokenCheck(app=app, settings=settings)
    if settings.allowed_origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=settings.allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=_EXPOSED_HEADERS,
            allow_private_network=True,
        )
    return OriginCheck(app=guarded, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginCheck:
    """An application for allowed hosts and origins; adds `HEADERS` to every response."""

    app: ASGIApp
    settings: HttpSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self.check(Headers(scope=scope), scope["path"])
        except ContextBuilderError as error:
            await http_error_response(error)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    def check(self, headers: Headers, path: str) -> None:
        """Check the Host header and the origin of a request.

        Raises:
            MisdirectedError: The host isn't served here, as when a foreign name was bound to this
                address (DNS rebinding).
            RefusedError: The request comes from a page of an origin that isn't allowed.
        """
        host = headers.get("Host", "")
        if not self._serves(host):
            raise MisdirectedError("this host is not served here; see http.allowed_hosts")
        if not path.startswith(GUARDED):
            return
        origin = headers.get("Origin")
        if origin in self.settings.allowed_origins:
            return
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise RefusedError("the origin of the page is not in http.allowed_origins")
        if headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
            raise RefusedError("requests from pages of other sites are not allowed")

    def _serves(self, host: str) -> bool:
        """Return whether a host is ours; beyond loopback, any is, unless some are listed."""
        allowed = self.settings.allowed_hosts
        if not is_loopback(self.settings.host):
            return not allowed or _name(host) in map(str.lower, allowed)
        return _name(host) in {*_LOCAL, *map(str.lower, allowed), bracketed(self.settings.host)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCheck:
    """An application whose `GUARDED` paths need the token."""

    app: ASGIApp
    settings: HttpSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        try:
            self.check(Headers(scope=scope), scope["path"])
        except ContextBuilderError as error:
            await http_error_response(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def check(self, headers: Headers, path: str) -> None:
        """Check the token of a request; raises `UnauthorizedError`."""
        if path.startswith(GUARDED) and not self._accepts(headers.getlist("Authorization")):
            raise UnauthorizedError("the header Authorization must be: Bearer, and the token")

    def _accepts(self, values: list[str]) -> bool:
        if self.settings.token is None:
            return True
        scheme, _, secret = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        token = self.settings.token.get_secret_value()
        same = hmac.compare_digest(secret.strip().encode(), token.encode())
        return same and scheme.lower() == "bearer"


def _name(host: str) -> str:
    """Return a host without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
