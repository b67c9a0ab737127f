"""The environment of a run: a durable server, workers over one database, and a caller."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError

from bench.chaos.traffic import Asked, send, tally
from bench.crew import Crew, open_crew
from bench.names import GROUP, STREAM
from bench.servers import DURABLE, entries, running_server
from tests.bus_server import RealServer

#: Seconds between two looks at the bus.
LOOK_SECONDS: Final = 0.05
#: Seconds after which nothing more is waited for: what was not answered by then is lost.
PATIENCE_SECONDS: Final = 300.0
#: Seconds for which a running worker may keep the histories locked.
LOCK_SECONDS: Final = 5.0

#: Servers that are killed come back, and have their data to read first.
PATIENT: Final = Retry(ExponentialBackoff(cap=0.5, base=0.05), 40)

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a run is."""

    requests: int = 5000
    kills: int = 20
    workers: int = 3
    #: Selects the workers to kill.
    seed: int = 1
    #: Of the workers' deliveries; 5 is the default of the service.
    lease_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A run in progress."""

    size: Size
    server: RealServer
    crew: Crew
    client: Redis
    #: The SQLite file that all workers share.
    histories: Path

    @property
    def requests(self) -> list[Asked]:
        """Return the requests of the run."""
        return [Asked(number) for number in range(self.size.requests)]

    async def send(self, requests: Sequence[Asked]) -> dict[str, Asked]:
        """Add requests to the stream; returns each by its entry."""
        return await send(self.client, requests)

    async def open(self) -> int:
        """Return how many entries are unsettled."""
        groups: Any = await self.client.xinfo_groups(STREAM)
        if not groups:  # nothing has been read yet
            return int(await self.client.xlen(STREAM))
        group = groups[0]
        lag = group["lag"]
        if lag is None:  # the server doesn't know it after a restart
            read: bytes = group["last-delivered-id"]
            lag = len(await entries(self.client, STREAM, first=f"({read.decode()}"))
        return int(group["pending"]) + int(lag)

    async def holders(self) -> dict[str, int]:
        """Return who has how many entries in work."""
        pending = await self.client.xpending(STREAM, GROUP)
        return {each["name"].decode(): each["pending"] for each in pending["consumers"] or ()}

    async def held(self, name: str) -> list[str]:
        """Return the entries that a worker has in work."""
        pending: Any = await self.client.xpending_range(STREAM, GROUP, "-", "+", 10_000, name)
        return [each["message_id"].decode() for each in pending]

    async def can_write(self) -> bool:
        """Return False if a worker keeps the histories locked, as one frozen in a write does."""

        def lock() -> bool:
            with closing(sqlite3.connect(self.histories, timeout=LOCK_SECONDS)) as database:
                try:
                    database.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    return False
                return True

        return await asyncio.to_thread(lock)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        """Wait until something holds; returns whether it came to that while there is patience."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await self._asked(holds):  # noqa: ASYNC110 - in other processes
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return False
        return True

    async def until_settled(self, most: int = 0) -> bool:
        """Wait until at most n entries are open."""

        async def few() -> bool:
            return await self.open() <= most

        return await self.until(few)

    async def result(self, requests: Sequence[Asked] | None = None) -> Figures:
        """Return what became of requests, of all of them by default."""
        asked = self.requests if requests is None else requests
        counted = await tally(self.client, asked)
        return {
            "requests": len(asked),
            "answered": counted.answered,
            "errors": counted.errors,
            "lost": counted.lost,
            "duplicates": counted.duplicates,
            "sent_again": counted.sent_again,
            "pending": sum((await self.holders()).values()),
        }

    @staticmethod
    async def _asked(holds: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await holds()
        except (RedisError, OSError):  # it may be away: that is what some runs are about
            return False


@asynccontextmanager
async def open_stage(size: Size, **settings: str) -> AsyncIterator[Stage]:
    """Start a server and workers; keywords are further settings of these, ``CTXB_…``."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        histories = folder / "history.db"
        async with (
            running_server(folder / "server", *DURABLE) as server,
            Redis.from_url(server.url, retry=PATIENT) as client,
        ):
            variables = {
                "CTXB_BUS__URL": server.url,
                "CTXB_BUS__LEASE_SECONDS": f"{size.lease_seconds:g}",
                "CTXB_BUS__HEARTBEAT_SECONDS": f"{size.lease_seconds / 5:g}",
                # answers are counted when all is over
                "CTXB_BUS__RESULT_TTL_SECONDS": "3600",
                "CTXB_BUS__REPLY_TTL_SECONDS": "3600",
                "CTXB_STORE__URL": f"sqlite:///{histories}",
                # a machine that starts workers all the time is slow, and that is no fault here
                "CTXB_GATHER__HISTORY_TIMEOUT_SECONDS": "30",
                **settings,
            }
            async with open_crew(folder, variables, size=size.workers) as crew:
                yield Stage(size=size, server=server, crew=crew, client=client, histories=histories)
