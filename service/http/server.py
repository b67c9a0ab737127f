"""Serve an ASGI application on a port of this process.

uvicorn has no public setting for two things that are needed here. Its ``capture_signals`` is
overridden, since the worker handles signals; and its protocol class is extended by a deadline for
request heads. ``pyproject.toml`` therefore limits uvicorn to the versions that were tested.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from service.errors import ConfigError

#: Seconds for responses in progress when the server stops.
GRACE: Final = 1
#: Connections at a time; probes, collectors and people need few.
MOST_CONNECTIONS: Final = 64
#: Seconds for the head of a request, from the connection or the head's first byte on.
HEAD_SECONDS: Final = 10.0
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
            app,
            http=_HeadDeadline,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE,
        )
        server = _EmbeddedServer(config)
        # no task group: it would wrap the errors of the worker
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield _address(listener)
        finally:
            server.should_exit = True
            await task


class _EmbeddedServer(Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _HeadDeadline(H11Protocol):
    """A connection that is closed if no complete request head arrives in time.

    uvicorn closes a connection that is idle after a response, but waits without limit for the rest
    of a head. A few slow senders would take all connections.
    """

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._check_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._check_deadline()

    def _check_deadline(self) -> None:
        """Start the deadline unless a request is being answered; more bytes don't extend it."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            if self._closing:
                self._closing.cancel()
            self._closing = None
        elif self._closing is None:
            self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)


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


def _address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
