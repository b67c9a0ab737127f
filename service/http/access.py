"""Who may ask: the host that is named, the page that asks, the token; and what answers carry."""

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
    error_response,
)

#: Names under which this machine reaches itself.
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
#: What a browser says of a request that our own page makes, or a person.
_OWN_SITES: Final = frozenset({"same-origin", "none"})
#: What begins so is for our own page and who has the token. The files of the page hold nobody's
#: data, and a link on any other page may lead to them.
GUARDED: Final = ("/v1/", "/version")

#: Nothing but our own files is loaded, run or connected to, and nobody may frame the page.
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


#: What pages of allowed origins may send, and read of an answer, beyond what any page may.
_SENT: Final = ("Authorization", "Content-Type", OWNER_HEADER, "Last-Event-ID")
_READ: Final = ("Retry-After", "WWW-Authenticate")


def checked(app: ASGIApp, settings: HttpSettings) -> ASGIApp:
    """Return an application behind all checks.

    The page is checked before the token: a browser asks whether a page may ask without one.
    Between the two stands what tells a browser that it may, so that also a refusal can be read.
    """
    asked: ASGIApp = TokenCheck(app=app, settings=settings)
    if settings.allowed_origins:
        asked = CORSMiddleware(
            asked,
            allow_origins=settings.allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=_SENT,
            expose_headers=_READ,
            allow_private_network=True,
        )
    return PageCheck(app=asked, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCheck:
    """An application that hosts and pages reach which may; every answer carries `HEADERS`."""

    app: ASGIApp
    settings: HttpSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self.check(Headers(scope=scope), scope["path"])
        except ContextBuilderError as error:
            await error_response(error)(scope, receive, dressed)
            return
        await self.app(scope, receive, dressed)

    def check(self, headers: Headers, path: str) -> None:
        """Raise unless the request may be made.

        Raises:
            MisdirectedError: It names a host that isn't served: a name was bound to our address.
            RefusedError: A page of another origin makes it, which isn't allowed to.
        """
        host = headers.get("Host", "")
        if not self._serves(host):
            raise MisdirectedError("this host is not served here; http.allowed_hosts names others")
        if not path.startswith(GUARDED):
            return
        origin = headers.get("Origin")
        if origin in self.settings.allowed_origins:
            return
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise RefusedError("http.allowed_origins doesn't name the page that asks")
        if headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
            raise RefusedError("pages of other sites may not ask")

    def _serves(self, host: str) -> bool:
        """Tell whether a host is ours; who listens for other machines need not know his names."""
        ours = self.settings.allowed_hosts
        if not is_loopback(self.settings.host):
            return not ours or _name(host) in map(str.lower, ours)
        return _name(host) in {*_LOCAL, *map(str.lower, ours), bracketed(self.settings.host)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCheck:
    """An application for those who have the token; its files are everybody's."""

    app: ASGIApp
    settings: HttpSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        try:
            self.check(Headers(scope=scope), scope["path"])
        except ContextBuilderError as error:
            await error_response(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def check(self, headers: Headers, path: str) -> None:
        """Raise unless the request may be made; raises `UnauthorizedError`."""
        if path.startswith(GUARDED) and not self._knows(headers.getlist("Authorization")):
            raise UnauthorizedError("the header Authorization has to be: Bearer, and the token")

    def _knows(self, given: list[str]) -> bool:
        if self.settings.token is None:
            return True
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        token = self.settings.token.get_secret_value()
        same = hmac.compare_digest(secret.strip().encode(), token.encode())
        return same and scheme.lower() == "bearer"


def _name(host: str) -> str:
    """Return a host without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
