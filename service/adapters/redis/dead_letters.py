"""The dead letter on a Redis bus, as those see it who settle it by hand."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis

from service.adapters.dead_letters import read_dead_letter
from service.adapters.redis.client import bus_errors
from service.adapters.redis.scripts import RETRY, Call, run
from service.bus import DeadLetter
from service.wire import Topics

#: Entries that are read in one round trip: each may have a payload of some megabytes.
CHUNK: Final = 20


class RedisDeadLetters:
    """The `DeadLetters` over one server."""

    def __init__(self, commands: Redis, prefix: str, sources: Sequence[str]) -> None:
        self._commands = commands
        self._key = prefix + Topics.CONTEXT_BUILD_DEAD
        #: The topics that entries go back to, and the streams that bear them.
        self._sources = tuple(sources)
        self._streams = tuple(prefix + source for source in sources)

    async def each(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that there are now, a few at a time."""
        low, high = "-", "+"
        for newest in await self._between(low, high, newest_first=True, count=1):
            high = newest.id
        while True:
            found = await self._between(low, high, newest_first=newest_first, count=CHUNK)
            for letter in found:
                yield letter
            if len(found) < CHUNK:
                return
            if newest_first:
                high = f"({found[-1].id}"
            else:
                low = f"({found[-1].id}"

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        found = await self._between(letter_id, letter_id, newest_first=False, count=1)
        return found[0] if found else None

    async def retry(self, ids: Sequence[str]) -> int:
        """Put payloads back on their streams, each in one step with its leaving."""
        keys = (self._key, *self._streams)
        calls = [Call(RETRY, keys, (letter_id, *self._sources)) for letter_id in ids]
        with bus_errors("retry dead letters"):
            return sum(await run(self._commands, calls))

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many were there."""
        if not ids:
            return 0
        with bus_errors("drop dead letters"):
            return int(await self._commands.xdel(self._key, *ids))

    async def _between(
        self, low: str, high: str, *, newest_first: bool, count: int
    ) -> list[DeadLetter]:
        with bus_errors("read dead letters"):
            found: Any = await (
                self._commands.xrevrange(self._key, high, low, count=count)
                if newest_first
                else self._commands.xrange(self._key, low, high, count=count)
            )
        return [read_dead_letter(entry.decode(), _named(fields)) for entry, fields in found]


def _named(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(errors="replace"): value for name, value in fields.items()}
