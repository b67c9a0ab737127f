"""Finds and deletes what a Redis bus holds of an owner.

Results and reports are keyed by hashes, and an index by owner would cost every build a write for
what lives a minute; so erasure, which is rare, looks into all of them with SCAN, in small steps
between which the server serves others.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.adapters.bus_records import Holder, owner_in, owners_of
from service.adapters.redis.client import bus_errors, is_away
from service.adapters.redis.keys import report_pattern, result_pattern
from service.adapters.redis.scripts import Command
from service.adapters.redis.servers import Servers, ask, run
from service.aio import batches
from service.ports.bus import DeadLetters, Forgotten

#: Keys that the server looks at in one step of a SCAN: well under a millisecond.
SCANNED: Final = 100
#: Values and entries that are read in one round trip; each may have some megabytes.
CHUNK: Final = 20
#: Dead letters that are deleted in one step.
DROPPED: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisErasure:
    """The erasure of one owner over one server, or a cluster."""

    servers: Servers
    prefix: str
    dead_letters: DeadLetters
    #: The names of the streams, prefix included.
    streams: Sequence[str]
    owner_key: str
    #: True counts and deletes nothing.
    dry_run: bool

    async def forget(self) -> Forgotten:
        """Delete answers, reports and dead letters; count what has to stay."""
        dead, unreadable = await self._dead_letters()
        return Forgotten(
            results=await self._values(result_pattern(self.prefix), "response"),
            reports=await self._values(report_pattern(self.prefix), "request"),
            dead_letters=dead,
            unreadable=unreadable,
            waiting=sum([await self._waiting(stream) for stream in self.streams]),
        )

    async def _values(self, pattern: str, holder: Holder) -> int:
        found: set[str] = set()
        with bus_errors("look for what is an owner's"):
            async for some in batches(self.servers.keys(pattern, SCANNED), CHUNK):
                mine = await self._mine(some, holder)
                found |= mine
                if mine and not self.dry_run:
                    await self._unlink(mine)
        return len(found)

    async def _mine(self, keys: Sequence[str], holder: Holder) -> set[str]:
        # a key of another type is something else's, and its reply an error
        values = await self.servers.attempt([Command(key, ("GET", key)) for key in keys])
        if away := next(filter(is_away, values), None):
            raise away
        return {
            key
            for key, value in zip(keys, values, strict=True)
            if isinstance(value, bytes) and owner_in(value, holder) == self.owner_key
        }

    async def _unlink(self, keys: set[str]) -> None:
        await run(self.servers, [Command(key, ("UNLINK", key)) for key in sorted(keys)])

    async def _dead_letters(self) -> tuple[int, int]:
        """Return how many were the owner's, and how many don't say whose they are."""
        mine: list[str] = []
        unreadable = 0
        async for letter in self.dead_letters.each():
            owners = owners_of(letter.payload)
            unreadable += not owners
            if self.owner_key in owners:
                mine.append(letter.id)
        if not self.dry_run:
            for start in range(0, len(mine), DROPPED):
                await self.dead_letters.drop(mine[start : start + DROPPED])
        return len(mine), unreadable

    async def _waiting(self, stream: str) -> int:
        waiting = 0
        async for payload in _payloads(self.servers, stream):
            waiting += self.owner_key in owners_of(payload)
        return waiting


async def _payloads(servers: Servers, stream: str) -> AsyncGenerator[bytes, None]:
    """Yield the payloads that there are now, a few at a time."""
    with bus_errors("read a stream"):
        last = Command(stream, ("XREVRANGE", stream, "+", "-", "COUNT", 1))
        newest: Any = await ask(servers, last)
        low, high = "-", newest[0][0] if newest else "-"
        while True:
            page = Command(stream, ("XRANGE", stream, low, high, "COUNT", CHUNK))
            found: Any = await ask(servers, page)
            for _, fields in found:
                yield fields.get(b"data", b"")
            if len(found) < CHUNK:
                return
            low = f"({found[-1][0].decode()}"
