"""Run commands and read streams on one server; `cluster` does the same on several."""

from asyncio import timeout
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic
from typing import Any, Final, Protocol

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import NoScriptError

from service.adapters.redis.connection import Clients, ServerClock
from service.adapters.redis.driver import Entry, read_entries, round_trip
from service.adapters.redis.scripts import TAKE, Argument, Call, Command

#: Seconds to wait for some of the streams before the next ones get their turn, when there are
#: fewer slots than streams.
TURN_SECONDS: Final = 0.05

#: An entry with the key of its stream.
StreamEntry = tuple[str, Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read from streams, and how long to wait for it."""

    group: str
    consumer: str
    #: Streams; entries of the first are preferred.
    keys: Sequence[str]
    #: Maximum of entries.
    slots: int
    #: Seconds to wait for an entry.
    wait: float
    #: Seconds beyond ``wait`` after which a silent server counts as lost.
    patience: float

    @property
    def slots_per_stream(self) -> int:
        """Return how many entries each stream may yield when all are read by one command.

        There may be no streams: those on unavailable nodes are not read.
        """
        return self.slots // max(len(self.keys), 1)

    @property
    def has_few_slots(self) -> bool:
        """Return whether waiting for all streams at once could yield too many entries."""
        return self.slots < len(self.keys)

    def command(
        self, keys: Sequence[str], count: int, wait: float | None = None
    ) -> tuple[Argument, ...]:
        """Return the command that reads at most ``count`` entries of each stream."""
        # BLOCK 0 would wait for ever
        block = ("BLOCK", max(1, ceil(wait * 1000))) if wait else ()
        group = ("GROUP", self.group, self.consumer)
        return ("XREADGROUP", *group, "COUNT", count, *block, "STREAMS", *keys, *[">"] * len(keys))


class Subscriber(Protocol):
    """Opens subscriptions."""

    def pubsub(self) -> PubSub:
        """Return a subscription over a connection of its own."""
        ...


class Servers(Protocol):
    """One server, or a cluster. All methods raise redis-py's errors."""

    @property
    def clock(self) -> ServerClock:
        """Return the clock that stamps entries."""
        ...

    async def execute(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls, those of one server in order and in one round trip; return their replies.

        A `ResponseError` is returned as a reply. So is the error of an unavailable cluster node,
        as long as another node is available (`is_unavailable`).
        """
        ...

    async def get(self, keys: Sequence[str]) -> Sequence[Any]:
        """Return the values of keys, None for a missing one; errors as `execute` returns them."""
        ...

    async def may_exist(self, keys: Sequence[str]) -> bool:
        """Return False if none of the keys exists, as far as one command can tell."""
        ...

    async def read(self, reading: Reading) -> list[StreamEntry]:
        """Read new entries of streams for a group, or wait for them."""
        ...

    def subscriber(self, channel: str) -> Subscriber:
        """Return an object that opens subscriptions to a channel."""
        ...

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns the number of subscribers."""
        ...

    async def count_subscribers(self, channels: Sequence[str]) -> list[int]:
        """Return the subscribers of channels for which a script's PUBLISH returned 0."""
        ...

    def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys that match a glob; SCAN looks at ``count`` keys a step.

        A key may be yielded twice. An unavailable node raises, rather than leave out its keys.
        """
        ...

    async def ping(self) -> None:
        """Raise unless a server answers; measures its clock."""
        ...


class OneServer:
    """A server that has all keys."""

    def __init__(self, clients: Clients) -> None:
        self.clock = clients.clock
        self._clients = clients

    async def execute(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls in one round trip."""
        return await execute(self._clients.commands, calls)

    async def get(self, keys: Sequence[str]) -> Sequence[Any]:
        """Return the values of keys, by one command."""
        values: Sequence[Any] = await run_one(self, Command(keys[0], ("MGET", *keys)))
        return values

    async def may_exist(self, keys: Sequence[str]) -> bool:
        """Return whether any of the keys exists; True if the user may not ask."""
        (count,) = await self.execute([Command(keys[0], ("EXISTS", *keys))])
        return bool(count)

    async def read(self, reading: Reading) -> list[StreamEntry]:
        """Read new entries of streams, or wait for them."""
        if reading.has_few_slots:
            return await read_in_turns(reading, self._take, self._wait)
        return await fill_slots(reading, await self._wait(reading), self._take)

    def subscriber(self, channel: str) -> Subscriber:  # noqa: ARG002 - the same for any channel
        """Return what opens subscriptions to a channel."""
        return self._clients.subscribing

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns the number of subscribers."""
        return int(await self._clients.commands.publish(channel, payload))

    async def count_subscribers(self, channels: Sequence[str]) -> list[int]:
        """Return 0 for each channel: a script's PUBLISH knows all subscribers."""
        return [0] * len(channels)

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys that match a glob."""
        async for key in self._clients.commands.scan_iter(match=pattern, count=count):
            yield key.decode()

    async def ping(self) -> None:
        """Raise unless the server answers; measures its clock."""
        await self.clock.measure(self._clients.commands)

    async def _take(self, reading: Reading) -> list[StreamEntry]:
        """Read what is there, over all streams, without waiting."""
        call = Call(TAKE, reading.keys, (reading.group, reading.consumer, reading.slots))
        (reply,) = raise_first_error(await execute(self._clients.commands, [call]))
        return [
            (stream.decode(), (entry.decode(), dict(zip(parts[::2], parts[1::2], strict=True))))
            for stream, entries in reply
            for entry, parts in entries
        ]

    async def _wait(self, reading: Reading) -> list[StreamEntry]:
        async with timeout(reading.wait + reading.patience):
            command = reading.command(reading.keys, reading.slots_per_stream, reading.wait)
            (reply,) = raise_first_error(await round_trip(self._clients.blocking, [command]))
            return flatten_entries(reply)


# --- running commands ------------------------------------------------------------------------


async def run(servers: Servers, calls: Sequence[Call | Command]) -> list[Any]:
    """Run calls; raises the first error among their replies, after all have run."""
    return raise_first_error(await servers.execute(calls))


async def run_one(servers: Servers, call: Call | Command) -> Any:  # noqa: ANN401 - the server's reply
    """Run one call; raises if it fails."""
    (reply,) = await run(servers, [call])
    return reply


async def execute(client: Redis, calls: Sequence[Call | Command]) -> list[Any]:
    """Run calls in order and in one round trip; a `ResponseError` is returned as a reply.

    Each script runs as one step. All calls run, even if one of them fails.
    """
    if not calls:
        return []
    replies = await round_trip(client, [call.words(by_sha=True) for call in calls])
    uncached = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if uncached:
        sources = [calls[index].words(by_sha=False) for index in uncached]
        for index, reply in zip(uncached, await round_trip(client, sources), strict=True):
            replies[index] = reply
    return replies


def raise_first_error(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


# --- strategies of reading, also for a cluster -----------------------------------------------

Read = Callable[[Reading], Awaitable[list[StreamEntry]]]


async def read_in_turns(reading: Reading, take: Read, wait: Read) -> list[StreamEntry]:
    """Read more streams than there are slots: take what is there, or wait for some in turn.

    To wait for all of them at once could yield an entry of each, which is more than the slots.
    """
    end, turn = monotonic() + reading.wait, 0
    while True:
        if entries := await take(reading):
            return entries
        remaining = end - monotonic()
        if remaining <= 0:
            return []
        keys = [*reading.keys[turn:], *reading.keys[:turn]][: reading.slots]
        turn = (turn + reading.slots) % len(reading.keys)
        if entries := await wait(replace(reading, keys=keys, wait=min(remaining, TURN_SECONDS))):
            return entries


async def fill_slots(reading: Reading, entries: list[StreamEntry], take: Read) -> list[StreamEntry]:
    """Fill the remaining slots from streams that yielded all that they could."""
    remaining = reading.slots - len(entries)
    counts = Counter(stream for stream, _ in entries)
    full = [key for key in reading.keys if counts[key] >= reading.slots_per_stream]
    if not remaining or not full:
        return entries
    return entries + await take(replace(reading, keys=full, slots=remaining))


def flatten_entries(reply: Any) -> list[StreamEntry]:  # noqa: ANN401 - as the driver gives it
    """Read a reply to XREADGROUP: entries with the keys of their streams."""
    return [(stream, entry) for stream, entries in read_entries(reply) for entry in entries]
