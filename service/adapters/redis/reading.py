"""New entries of streams, for one worker of a group: never more than it has slots for."""

from asyncio import timeout
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic
from typing import Any, Final

from service.adapters.redis.client import Clients, Entry, entries
from service.adapters.redis.round_trip import Argument, round_trip
from service.adapters.redis.scripts import Call, attempt, checked, script

#: Seconds that a worker waits for a part of its streams, where it has fewer slots than streams.
SHORT_WAIT: Final = 0.05

#: An entry with the key of its stream.
Found = tuple[str, Entry]

#: KEYS: streams. ARGV: group, consumer, entries at most over all of them.
#: Returns what XREADGROUP does.
TAKE = script("""
local group, consumer, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local taken = {}
for _, stream in ipairs(KEYS) do
  if left == 0 then break end
  local reply = redis.call(
    'XREADGROUP', 'GROUP', group, consumer, 'COUNT', left, 'STREAMS', stream, '>'
  )
  if reply and reply[1] then
    taken[#taken + 1] = reply[1]
    left = left - #reply[1][2]
  end
end
return taken
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read, for whom, how much of it, and how long to wait for it."""

    group: str
    consumer: str
    #: Streams, the one whose turn it is first.
    keys: Sequence[str]
    #: Entries at most.
    slots: int
    #: Seconds.
    wait: float
    #: Seconds beyond which a silent server counts as gone.
    patience: float

    @property
    def few(self) -> bool:
        """Say whether there are fewer slots than streams, so that not all can be waited for."""
        return self.slots < len(self.keys)

    @property
    def share(self) -> int:
        """Return how many entries each stream may bring, where all are read at once.

        There may be no stream: those on nodes that are away aren't read.
        """
        return self.slots // max(len(self.keys), 1)

    def command(
        self, keys: Sequence[str], count: int, wait: float | None = None
    ) -> tuple[Argument, ...]:
        """Return the command that reads at most so many entries of each stream."""
        # 0 would wait for ever
        block = ("BLOCK", max(1, ceil(wait * 1000))) if wait else ()
        group = ("GROUP", self.group, self.consumer)
        return ("XREADGROUP", *group, "COUNT", count, *block, "STREAMS", *keys, *[">"] * len(keys))


class StreamsReader:
    """Reads the streams of one server, all in one command."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def read(self, reading: Reading) -> list[Found]:
        """Return new entries, or none where none come in time."""
        if not reading.few:
            return await filled(reading, await self._wait(reading), self._take)
        return await in_parts(reading, self._take, self._wait)

    async def _take(self, reading: Reading) -> list[Found]:
        """Read as much as there is, over all streams, without waiting."""
        call = Call(TAKE, reading.keys, (reading.group, reading.consumer, reading.slots))
        (reply,) = checked(await attempt(self._clients.commands, [call]))
        return [found for each in reply for found in _from_script(each)]

    async def _wait(self, reading: Reading) -> list[Found]:
        async with timeout(reading.wait + reading.patience):
            command = reading.command(reading.keys, reading.share, reading.wait)
            (reply,) = checked(await round_trip(self._clients.blocking, [command]))
            return flat_entries(reply)


Read = Callable[[Reading], Awaitable[list[Found]]]


async def in_parts(reading: Reading, take: Read, wait: Read) -> list[Found]:
    """Read with fewer slots than streams: take what there is, else wait for some streams in turn.

    Waiting for all of them could bring an entry of each.
    """
    end, turn = monotonic() + reading.wait, 0
    while True:
        if found := await take(reading):
            return found
        left = end - monotonic()
        if left <= 0:
            return []
        keys = [*reading.keys[turn:], *reading.keys[:turn]][: reading.slots]
        turn = (turn + reading.slots) % len(reading.keys)
        if found := await wait(replace(reading, keys=keys, wait=min(left, SHORT_WAIT))):
            return found


async def filled(reading: Reading, found: list[Found], take: Read) -> list[Found]:
    """Take what streams have beyond their share, as long as there are slots for it."""
    left = reading.slots - len(found)
    brought = Counter(stream for stream, _ in found)
    more = [key for key in reading.keys if brought[key] >= reading.share]
    if not left or not more:
        return found
    return found + await take(replace(reading, keys=more, slots=left))


def flat_entries(reply: Any) -> list[Found]:  # noqa: ANN401 - as the driver gives it
    """Read a reply to XREADGROUP, each entry with the key of its stream."""
    return [(stream, entry) for stream, found in entries(reply) for entry in found]


def _from_script(reply: Sequence[Any]) -> list[Found]:
    """Read what a script got from XREADGROUP for a stream."""
    stream, found = reply
    return [
        (stream.decode(), (entry.decode(), dict(zip(parts[::2], parts[1::2], strict=True))))
        for entry, parts in found
    ]
