"""Start a real bus server that ends with this process, or join that of another process."""

import asyncio
import os
import secrets
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from service.adapters.embedded.address import (
    ADDRESS,
    locked_address,
    read_address,
    remove_address,
    write_address,
)
from service.adapters.embedded.binaries import ServerBinary
from service.errors import BusError

GUARD = Path(__file__).with_name("guard.py")
#: Seconds within which the server must answer.
START_SECONDS = 30.0
#: Seconds between pings until it answers.
PING_SECONDS = 0.02
#: Seconds within which a server that runs already must answer.
JOIN_SECONDS = 5.0
#: Ports to try: another process may take one between the choice and the start.
ATTEMPTS = 5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedServer:
    """A server that other processes in the working directory can find."""

    url: str
    #: Whether another process runs it.
    joined: bool
    #: Whether its URL is in the file `ADDRESS`.
    kept: bool


@asynccontextmanager
async def shared_server(binary: ServerBinary) -> AsyncIterator[SharedServer]:
    """Join the server whose address the working directory has, or run one and keep its address.

    Of processes that start at the same time, one runs the server. An address that doesn't answer is
    replaced. Where none can be kept, as in a folder that is read-only, the log has the reason.
    Raises `BusError` as `embedded_server` does.
    """
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as lock:
            try:
                await lock.enter_async_context(locked_address())
                can_keep = True
            except OSError as error:
                _log_not_kept(error)
                can_keep = False
            url = _find_address() if can_keep else None
            joined = url is not None and await _runs(url)
            if url is None or not joined:
                url = await stack.enter_async_context(embedded_server(binary))
            kept = joined or (can_keep and _keep_address(url, stack))
        yield SharedServer(url=url, joined=joined, kept=kept)


def _find_address() -> str | None:
    """Return the address in the working directory; None if it is missing or can't be trusted."""
    try:
        return read_address()
    except OSError:  # the folder is ours, as its lock is: the file is replaced
        return None


def _keep_address(url: str, stack: AsyncExitStack) -> bool:
    """Write an address, to be removed before its server ends; returns whether that was possible."""
    try:
        write_address(url)
    except OSError as error:
        _log_not_kept(error)
        return False
    stack.callback(remove_address, url)
    return True


def _log_not_kept(error: OSError) -> None:
    reason = str(error) or type(error).__name__
    log.warning("embedded_server.address_not_kept", file=str(ADDRESS), reason=reason)


async def _runs(url: str) -> bool:
    """Return whether a server answers at its address, and knows the password."""
    client = Redis.from_url(url, socket_timeout=JOIN_SECONDS, retry=Retry(NoBackoff(), 0))
    async with client:
        with suppress(RedisError, OSError):
            await client.ping()
            return True
    return False


@asynccontextmanager
async def embedded_server(binary: ServerBinary) -> AsyncIterator[str]:
    """Run a server on a free loopback port while the context lasts; yields its URL.

    It leaves nothing on disk. The URL contains a password made for this run. Raises `BusError` if
    it doesn't start.
    """
    password = secrets.token_urlsafe(24)
    guard, port = await _start(binary, password)
    log.info("embedded_server.started", origin=binary.origin, port=port)
    try:
        yield _url(password, port)
    finally:
        await _stop(guard)


async def _start(binary: ServerBinary, password: str) -> tuple[Process, int]:
    reason = ""
    for _ in range(ATTEMPTS):
        port = _free_port()
        guard = await _spawn(binary, password, port)
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
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _url(password: str, port: int) -> str:
    return f"redis://default:{password}@127.0.0.1:{port}/0"


async def _spawn(binary: ServerBinary, password: str, port: int) -> Process:
    configuration = [
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",
        "protected-mode yes",
        "daemonize no",
        'save ""',
        "appendonly no",
        "maxmemory-policy noeviction",
        # disconnect a slow subscriber late: what it has not read is lost
        "client-output-buffer-limit pubsub 256mb 64mb 60",
    ]
    guard = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", str(GUARD), str(os.getpid()), str(binary.path)),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=PIPE,
        # Ctrl-C in a terminal must reach the worker only, which needs the bus to drain
        start_new_session=True,
    )
    if guard.stdin is not None:
        guard.stdin.write("\n".join([*configuration, "", ""]).encode())
    return guard


async def _answers(guard: Process, url: str) -> bool:
    """Wait until the server answers; False if it exits or takes too long."""
    ended = asyncio.create_task(guard.wait())
    client = Redis.from_url(url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
    try:
        async with asyncio.timeout(START_SECONDS), client:
            while not ended.done():
                # not listening yet
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
