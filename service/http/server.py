"""Serve the HTTP interface of a worker."""

import asyncio
import errno
import socket
from asyncio import Transport
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from service.audit.store import Filing
from service.builder import ContextBuilder
from service.errors import ConfigError
from service.http.app import make_app
from service.http.building import Send
from service.http.error_responses import LateError
from service.http.recent_builds import RecentBuilds
from service.ports.bus import Bus
from service.wire.response import BuildResponse

#: Seconds for answers that are on their way when the server ends.
GRACE: Final = 1
#: Connections at a time; probes, collectors and people need few.
MOST: Final = 64
#: Seconds in which the head of a request has to come, from the connection or its first byte on.
HEAD_SECONDS: Final = 10.0
#: Seconds that an idle connection is kept: longer than common clients keep theirs, or they would
#: send a request over one that is being closed.
IDLE_SECONDS: Final = 10


class _InnerServer(Server):
    """A server that leaves signals to the process that it is part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Impatient(H11Protocol):
    """A connection that is closed where no whole request comes over it: there are few of them.

    uvicorn gives up one on which nothing comes after an answer, but waits for ever for the rest of
    what has begun.
    """

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def _look(self) -> None:
        """Close in a while, unless a request is answered; what comes till then gives no more."""
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            if self._closing:
                self._closing.cancel()
            self._closing = None
        elif self._closing is None:
            self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)


@asynccontextmanager
async def serving(
    app: ASGIApp, host: str, port: int, *, section: str, or_free: bool = False
) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address, such as ``http://127.0.0.1:8765``.

    With ``or_free`` a port that is taken makes way for a free one. Raises `ConfigError`, which
    names the ``section`` of the settings, where the port is taken, or ``host`` is no address of
    this machine.
    """
    with _listening(host, port, section, or_free=or_free) as listener:
        config = Config(
            app,
            http=_Impatient,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE,
        )
        server = _InnerServer(config)
        # no task group: it would wrap the errors of the worker
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield _address(listener)
        finally:
            server.should_exit = True
            await task


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
            f"{section}.port: can't listen on {port} of {host}: {error.strerror or error};"
            " 0 takes a free port, null none"
        ) from error
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Sending:
    """Sends requests until `end`, which nobody has to wait for in vain."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(
        self, request: Mapping[str, Any], *, timeout_seconds: float | None = None
    ) -> BuildResponse:
        """Send a request and return the response; raises `LateError` where `end` comes first."""
        sending = asyncio.ensure_future(self._send(request, timeout_seconds=timeout_seconds))
        either: set[asyncio.Future[Any]] = {sending, self._end}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                return sending.result()
        finally:
            sending.cancel()
        raise LateError("the worker ends; another one may build the request yet")

    def end(self) -> None:
        """Tell all who wait that there will be no answer here."""
        self._end.set_result(None)


log = structlog.get_logger(__name__)

#: Seconds between two looks for builds that are too old to be kept.
TIDY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, and where."""

    address: str
    #: Wants to be given builds whose manifests are on the bus.
    recent: RecentBuilds


@asynccontextmanager
async def open_http(
    port: int, bus: Bus, builder: ContextBuilder, send: Send
) -> AsyncIterator[Served]:
    """Serve a builder and the builds that it is given; raises `ConfigError`."""
    settings = builder.settings
    recent = RecentBuilds(
        size=settings.http.builds, seconds=settings.manifests.ttl_seconds, now=builder.clock
    )
    sending = Sending(send)
    app = make_app(builder, recent, Filing(bus.reports, settings), sending.send)
    async with serving(app, settings.http.host, port, section="http") as address:
        log.info("http.listening", address=address)
        # no task group: it would wrap the errors of the worker
        tidying = asyncio.create_task(_tidy(recent))
        try:
            yield Served(address, recent)
        finally:
            recent.close()
            sending.end()
            tidying.cancel()
            with suppress(asyncio.CancelledError):
                await tidying


async def _tidy(recent: RecentBuilds) -> None:
    """Let go of old builds where no new ones come."""
    while True:
        await asyncio.sleep(TIDY_SECONDS)
        recent.tidy()
