"""Where calls go: one server, or whichever node of a cluster has their keys."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from redis.asyncio.client import PubSub

from service.adapters.redis.client import Clients, ServerClock
from service.adapters.redis.reading import Found, Reading, StreamsReader
from service.adapters.redis.scripts import Call, Command, attempt, checked


class Listening(Protocol):
    """What opens subscriptions."""

    def pubsub(self) -> PubSub:
        """Return a subscription to be, over a connection of its own."""
        ...


class Servers(Protocol):
    """The servers of a bus. All methods raise the errors of redis-py."""

    @property
    def clock(self) -> ServerClock:
        """Return the clock that stamps entries."""
        ...

    @property
    def undivided(self) -> bool:
        """Say whether one step may work on any keys; in a cluster they must share a slot."""
        ...

    async def attempt(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls, those of one server in their order and in one round trip.

        A `ResponseError` stands in its reply's place; so does the error of a node of a cluster
        that is away while others are there.
        """
        ...

    async def read(self, reading: Reading) -> list[Found]:
        """Read new entries of streams for a group, or wait for them."""
        ...

    def listening(self, channel: str) -> Listening:
        """Return what subscribes to a channel."""
        ...

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns how many heard it, 0 only where nobody did."""
        ...

    async def unheard(self, channels: Sequence[str]) -> list[int]:
        """Return how many listen to channels on which a script reached nobody."""
        ...

    def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys that match a glob, in steps of some ``count`` of all keys.

        A key may come twice; a node that is away is no reason to leave out its keys, but an error.
        """
        ...

    async def ping(self) -> None:
        """Raise unless a server answers; sets the clock by it."""
        ...


class OneServer:
    """A server that has all keys."""

    undivided = True

    def __init__(self, clients: Clients) -> None:
        self.clock = clients.clock
        self._clients = clients
        self._reader = StreamsReader(clients)

    async def attempt(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls in one round trip."""
        return await attempt(self._clients.commands, calls)

    async def read(self, reading: Reading) -> list[Found]:
        """Read new entries of streams, or wait for them."""
        return await self._reader.read(reading)

    def listening(self, channel: str) -> Listening:  # noqa: ARG002 - any channel
        """Return what subscribes to a channel."""
        return self._clients.listening

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns how many heard it."""
        return int(await self._clients.commands.publish(channel, payload))

    async def unheard(self, channels: Sequence[str]) -> list[int]:
        """Return that nobody listens: a script knows them all."""
        return [0] * len(channels)

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys that match a glob."""
        async for key in self._clients.commands.scan_iter(match=pattern, count=count):
            yield key.decode()

    async def ping(self) -> None:
        """Raise unless the server answers; sets the clock by it."""
        await self.clock.measure(self._clients.commands)


async def run(servers: Servers, calls: Sequence[Call | Command]) -> list[Any]:
    """Run calls; then the first error among their replies is raised."""
    return checked(await servers.attempt(calls))


async def ask(servers: Servers, call: Call | Command) -> Any:  # noqa: ANN401 - the server's reply
    """Run one call; raises where it fails."""
    (reply,) = await run(servers, [call])
    return reply
