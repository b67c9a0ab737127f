"""The dead letter on a Redis bus, as those see it who settle it by hand."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from service.adapters.bus_records import read_dead_letter
from service.adapters.redis.client import bus_errors
from service.adapters.redis.scripts import RETRY, Call, Command
from service.adapters.redis.servers import Servers, ask, run
from service.adapters.redis.shards import all_topics
from service.ports.bus import DeadLetter
from service.wire.protocol import Topics

#: Entries that are read in one round trip: each may have a payload of some megabytes.
CHUNK: Final = 20


class RedisDeadLetters:
    """The `DeadLetters` over one server, or a cluster."""

    def __init__(self, servers: Servers, prefix: str, results: Sequence[str]) -> None:
        self._servers = servers
        self._prefix = prefix
        self._key = prefix + Topics.CONTEXT_BUILD_DEAD
        #: The topics that entries go back to, besides those of requests.
        self._results = tuple(results)

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
        """Put payloads back on their streams, each in one step with its leaving.

        In a cluster those are two: one that dies in between leaves an entry in both places.
        """
        done = 0
        for letter_id in ids:
            letter = await self.find(letter_id)
            if letter is not None and self._is_ours(letter.source):
                with bus_errors("retry dead letters"):
                    done += await self._retry(letter)
        return done

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many were there."""
        if not ids:
            return 0
        with bus_errors("drop dead letters"):
            return int(await ask(self._servers, Command(self._key, ("XDEL", self._key, *ids))))

    def _is_ours(self, source: str) -> bool:
        return source in self._results or source in all_topics()

    async def _retry(self, letter: DeadLetter) -> int:
        stream = self._prefix + letter.source
        call = Call(RETRY, (self._key, stream), (letter.id,))
        if self._servers.undivided:
            return int(await ask(self._servers, call))
        if not letter.payload:
            return 0
        put = Command(stream, ("XADD", stream, "*", "data", letter.payload))
        await run(self._servers, [put])
        return await self.drop([letter.id])

    async def _between(
        self, low: str, high: str, *, newest_first: bool, count: int
    ) -> list[DeadLetter]:
        with bus_errors("read dead letters"):
            name, first, last = ("XREVRANGE", high, low) if newest_first else ("XRANGE", low, high)
            said = (name, self._key, first, last, "COUNT", count)
            found: Any = await ask(self._servers, Command(self._key, said))
        return [read_dead_letter(entry.decode(), _named(fields)) for entry, fields in found]


def _named(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(errors="replace"): value for name, value in fields.items()}
