"""Serve an ASGI application on a port of this process.

uvicorn has no public setting for three things that are needed here. Its ``capture_signals`` is
overridden, since the worker handles signals; and its protocol class is extended by a deadline for
slow clients, and by a limit of connections that they can't exhaust. ``pyproject.toml`` therefore
limits uvicorn to the versions that were tested.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from service.config.endpoints import bracketed
from service.errors import ConfigError, InvalidRequestError
from service.http.error_responses import http_error_response

#: Seconds for responses in progress when the server stops.
GRACE: Final = 1
#: Connections of a port at a time; probes, collectors and people need few.
MOST_CONNECTIONS: Final = 64
#: Seconds for the head of a request, from the connection or the head's first byte on; and for the
#: client to read on while it takes nothing of a response.
CLIENT_SECONDS: Final = 10.0
#: Seconds that an idle connection is kept: longer than common clients keep theirs, or they would
#: send a request over one that is being closed.
IDLE_SECONDS: Final = 10


@asynccontextmanager
async def serving(
    app: ASGIApp, host: str, port: int, *, section: str, or_free: bool = False
) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address, such as ``http://127.0.0.1:8765``.

    With ``or_free``, a free port is used if this one is taken.

    Raises `ConfigError`, which names the ``section`` of the settings, if the port is taken or
    ``host`` is no address of this machine.
    """
    with _listening(host, port, section, or_free=or_free) as listener:
        config = Config(
            _with_clear_framing(app),
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE,
        )
        server = _EmbeddedServer(config)
        # no task group: it would wrap the errors of the worker
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            address, port = listener.getsockname()[:2]
            yield f"http://{bracketed(address)}:{port}"
        finally:
            server.should_exit = True
            await task


class _EmbeddedServer(Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """A connection that is closed if its client is slow, or if others need its place.

    uvicorn closes a connection that is idle after a response, but waits without limit for the rest
    of a head, or for a client to read on; and at its limit of connections it refuses all requests.
    A few slow clients would thus keep all others out.
    """

    #: All of the server, which are of this class.
    connections: set[Any]
    opened = 0.0
    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self.opened = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._check_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._check_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_deadline()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._check_deadline()

    @property
    def awaits_client(self) -> bool:
        """Whether it waits for a request, or for its client to read a response."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete or self.flow.write_paused

    def _check_deadline(self) -> None:
        """Start the deadline if the client is to act; more bytes of a head don't extend it."""
        if not self.awaits_client:
            if self._closing:
                self._closing.cancel()
            self._closing = None
        elif self._closing is None:
            # not `close`, which waits for the client to read the rest
            self._closing = self.loop.call_later(CLIENT_SECONDS, self.transport.abort)

    def _make_room(self) -> None:
        """Close a connection of the address with the most, if possible one that awaits its client.

        So slow clients lose connections of their own, not those of probes from elsewhere.
        """
        held = Counter(each.address for each in self.connections)
        most = max(held.values())

        def rank(each: "_Connection") -> tuple[bool, bool, bool, float]:
            heavy, awaits = held[each.address] == most, each.awaits_client
            dispensable = awaits and each is not self
            return not (heavy and awaits), not dispensable, not heavy, each.opened

        chosen = min(self.connections, key=rank)
        # uvicorn forgets it a moment later, but more may have connected by then
        self.connections.discard(chosen)
        chosen.transport.abort()

    @property
    def address(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""


def _with_clear_framing(app: ASGIApp) -> ASGIApp:
    """Return an application that refuses requests with two lengths, and closes their connection.

    A proxy may see another end of such a request than this server: what follows could be read as
    the request of somebody else (RFC 9112, section 6.1).
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "Content-Length" in headers and "Transfer-Encoding" in headers:
            error = InvalidRequestError("Content-Length and Transfer-Encoding exclude each other")
            response = http_error_response(error)
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


@contextmanager
def _listening(host: str, port: int, section: str, *, or_free: bool) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        try:
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            if not or_free or error.errno != errno.EADDRINUSE:
                raise
            listener = socket.create_server((host, 0), family=family)
    except OSError as error:
        raise ConfigError(
            f"{section}.port: can't listen on port {port} of {host}: {error.strerror or error};"
            " 0 takes a free port, null serves none"
        ) from error
    with listener:
        yield listener
