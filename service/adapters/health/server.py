"""An HTTP server in the event loop of a worker."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server

from service.errors import ConfigError

log = structlog.get_logger()

#: Seconds for answers that are on their way when the server ends.
GRACE: Final = 1
#: Connections at a time; probes and collectors need few.
MOST: Final = 64


class _InnerServer(Server):
    """A server that leaves signals to the process that it is part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    app: ASGIApp, host: str, port: int, *, or_free: bool = False
) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address, such as ``http://127.0.0.1:8765``.

    With ``or_free`` a port that is taken makes way for a free one. Raises `ConfigError` where the
    port is taken, or ``host`` is no address of this machine.
    """
    with _listening(host, port, or_free=or_free) as listener:
        config = Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST,
            timeout_graceful_shutdown=GRACE,
        )
        server = _InnerServer(config)
        # no task group: it would wrap the errors of the worker
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            address = _address(listener)
            log.info("health.listening", address=address)
            yield address
        finally:
            server.should_exit = True
            await task


@contextmanager
def _listening(host: str, port: int, *, or_free: bool) -> Iterator[socket.socket]:
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
            f"health.port: can't listen on {port} of {host}: {error.strerror or error};"
            " 0 takes a free port, null none"
        ) from error
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
