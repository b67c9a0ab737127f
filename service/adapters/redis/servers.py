"""Run commands and read streams on one server; `cluster` does the same on several."""

from asyncio import timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from time import monotonic, time
from typing import Any, Final

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.clients import Clients, make_clients
from service.adapters.redis.driver import Command, bus_errors, execute, is_unavailable

#: Seconds to wait for some of the streams before the next ones get their turn, when there are
#: fewer slots than streams.
TURN_SECONDS: Final = 0.05
EPOCH: Final = datetime.fromtimestamp(0, UTC)
#: How far an entry's id may be ahead of the clock, which is measured now and then.
AHEAD: Final = timedelta(minutes=1)

#: The key of a stream, and an entry of it: its id and its fields.
StreamEntry = tuple[str, tuple[str, Mapping[bytes, bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The streams to read, and how long to wait for them."""

    group: str
    consumer: str
    #: Streams; entries of the first are preferred. Empty if all nodes are unavailable.
    keys: Sequence[str]
    #: Maximum of entries.
    slots: int
    #: Seconds to wait for an entry.
    wait: float
    #: Seconds beyond ``wait`` after which a silent server counts as lost.
    patience: float

    @property
    def share(self) -> int:
        """Return how many entries each stream may yield when all are read at once."""
        return self.slots // len(self.keys)

    def command(self, keys: Sequence[str], count: int, wait: float = 0.0) -> Command:
        """Return the command that reads at most ``count`` entries of each stream."""
        # BLOCK 0 would wait for ever
        block = ("BLOCK", max(1, ceil(wait * 1000))) if wait else ()
        group = ("GROUP", self.group, self.consumer)
        streams = ("STREAMS", *keys, *[">"] * len(keys))
        return Command("XREADGROUP", *group, "COUNT", count, *block, *streams, at=keys[0])


class ServerClock:
    """The server's time: the local clock plus the difference that was last measured."""

    def __init__(self) -> None:
        self._offset = 0.0

    async def measure(self, ask: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """Ask the server for its time; assumes that half of the round trip is the way there."""
        before = time()
        seconds, microseconds = await ask()
        middle = (before + time()) / 2
        self._offset = seconds + microseconds / 1e6 - middle

    def now(self) -> datetime:
        """Return the server's time."""
        return datetime.fromtimestamp(time() + self._offset, UTC)

    def written_at(self, entry_id: str) -> datetime:
        """Return when an entry was written; now, if its id is not a time up to now.

        Entries of one millisecond keep their order: they are a microsecond apart.
        """
        milliseconds, _, number = entry_id.partition("-")
        now = self.now()
        with suppress(OverflowError):
            after = timedelta(milliseconds=int(milliseconds), microseconds=min(int(number), 999))
            if EPOCH + after < now + AHEAD:
                return EPOCH + after
        return now

    def age(self, entry_id: str) -> float:
        """Return the seconds since an entry was written."""
        return max(0.0, (self.now() - self.written_at(entry_id)).total_seconds())


class Servers:
    """One server, which has all keys; `Cluster` has several. Most methods raise redis-py's errors.

    Its clients are those of the server, or of a cluster's first node.
    """

    def __init__(self, clients: Clients) -> None:
        #: The clock that stamps entries.
        self.clock = ServerClock()
        self._clients = clients

    async def run(self, action: str, calls: Sequence[Command]) -> list[Any]:
        """Run calls; raises the first error among their replies, after all have run.

        As `ask` and `run_one`, it raises a `BusError`, in which ``action`` is what was tried.
        """
        with bus_errors(action):
            return raise_first_error(await self.execute(calls))

    async def ask(self, action: str, calls: Sequence[Command]) -> list[Any]:
        """Run calls as `run` does, but return the server's errors; those of connections raise."""
        with bus_errors(action):
            replies = await self.execute(calls)
            raise_first_error([*filter(is_unavailable, replies)])
            return replies

    async def run_one(self, action: str, call: Command) -> Any:  # noqa: ANN401 - the server's reply
        """Run one call as `run` does."""
        (reply,) = await self.run(action, [call])
        return reply

    async def read(self, reading: Reading) -> list[StreamEntry]:
        """Read new entries of streams for a group, or wait for them.

        If there are fewer slots than streams, some are waited for in turn: to wait for all of them
        at once could yield an entry of each, which is more than the slots.
        """
        if len(reading.keys) <= 1:
            return await self._wait(reading)  # which also reads what is there
        end, turn = monotonic() + reading.wait, 0
        while True:
            if entries := await self._take(reading):
                return entries
            remaining = end - monotonic()
            if remaining <= 0:
                return []
            keys = [*reading.keys[turn:], *reading.keys[:turn]][: reading.slots]
            turn = (turn + reading.slots) % len(reading.keys)
            wait = remaining if len(keys) == len(reading.keys) else min(remaining, TURN_SECONDS)
            if entries := await self._wait(replace(reading, keys=keys, wait=wait)):
                return entries

    async def _take(self, reading: Reading) -> list[StreamEntry]:
        """Read as many streams at once as there are slots, then those that may have more."""
        replies: list[Any] = []
        keys, room = [*reading.keys], reading.slots
        while keys and room:
            some, keys = keys[:room], keys[room:]
            share = room // len(some)
            try:
                new = await self.execute([reading.command([key], share) for key in some])
            except (RedisError, OSError):
                if room == reading.slots:
                    raise
                break  # the entries taken so far would be lost until their lease expires
            counts = [len(read_entries(reply)) for reply in new]
            keys += [key for key, count in zip(some, counts, strict=True) if count == share]
            room -= sum(counts)
            replies += new
        return entries_in(replies)

    async def execute(self, calls: Sequence[Command]) -> list[Any]:
        """Run calls, those of one server in order and in one round trip; return their replies.

        A `ResponseError` is returned as a reply. So is the error of an unavailable cluster node,
        as long as another node is available (`is_unavailable`).
        """
        return await execute(self._clients.commands, calls)

    async def get(self, keys: Sequence[str]) -> Sequence[Any]:
        """Return the values of keys, None for a missing one; errors as `execute` returns them."""
        (values,) = raise_first_error(await self.execute([Command("MGET", *keys)]))
        return list(values)

    async def may_exist(self, keys: Sequence[str]) -> bool:
        """Return False if none of the keys exists, as far as one command can tell."""
        (count,) = await self.execute([Command("EXISTS", *keys)])
        return bool(count)  # an error, if the user may not ask

    async def count_subscribers(self, channels: Sequence[str]) -> list[int]:
        """Return the subscribers of channels for which a script's PUBLISH returned 0."""
        return [0] * len(channels)

    def pubsub(self, channel: str, attempt: int) -> PubSub:  # noqa: ARG002 - of a cluster
        """Return a subscription over a connection of its own, for the nth attempt to subscribe."""
        return self._clients.subscribing.pubsub()

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns the number of subscribers."""
        return int(await self._clients.commands.publish(channel, payload))

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys that match a glob; SCAN looks at ``count`` keys a step.

        A key may be yielded twice. An unavailable node raises, rather than leave out its keys.
        """
        async for key in self._clients.commands.scan_iter(match=pattern, count=count):
            yield key.decode()

    async def ping(self) -> None:
        """Raise unless a server answers; measures its clock."""
        await self.clock.measure(self._clients.commands.time)

    async def _wait(self, reading: Reading) -> list[StreamEntry]:
        """Wait for entries of any stream; each yields its share at most."""
        async with timeout(reading.wait + reading.patience):
            command = reading.command(reading.keys, reading.share, reading.wait)
            (reply,) = raise_first_error(await execute(self._clients.blocking, [command]))
            return read_entries(reply)


@asynccontextmanager
async def open_server(url: str, options: BusOptions) -> AsyncIterator[Servers]:
    """Connect to ``redis://``, ``rediss://`` or ``unix://``; raises `BusError`, `ConfigError`."""
    async with AsyncExitStack() as stack:
        clients = make_clients(stack, url, options)
        server = Servers(clients)
        # without the user and the password
        address = clients.commands.connection_pool.connection_kwargs
        tcp = f"{address.get('host', 'localhost')}:{address.get('port', 6379)}"
        with bus_errors(f"connect to {address.get('path') or tcp}"):
            await server.ping()
        yield server


def raise_first_error(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def entries_in(replies: Sequence[Any]) -> list[StreamEntry]:
    """Return the entries in replies; raises a server's error if there are none."""
    entries = [entry for reply in replies for entry in read_entries(reply)]
    errors = [reply for reply in replies if isinstance(reply, ResponseError)]
    if errors and not entries:
        raise errors[0]
    return entries


def read_entries(reply: Any) -> list[StreamEntry]:  # noqa: ANN401 - as the driver gives it
    """Read a reply to XREADGROUP, of any protocol version; an error has no entries."""
    if isinstance(reply, Exception):
        return []
    streams = reply.items() if isinstance(reply, Mapping) else reply or ()
    return [
        (stream.decode(), (entry.decode(), fields))
        for stream, entries in streams
        # with protocol=3 in the URL, redis-py wraps the entries in one more list
        for entry, fields in (entries[0] if entries and isinstance(entries[0], list) else entries)
        if entry
    ]
