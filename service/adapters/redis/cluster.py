"""A cluster of Redis or Valkey: each call goes to the node that has its keys.

redis-py's own client for clusters gives up a whole pipeline, and closes all connections, where one
node is away; here the other nodes go on being served.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from redis.asyncio.client import PubSub
from redis.exceptions import AskError, MovedError, RedisError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.client import ServerClock, bus_errors, is_away
from service.adapters.redis.cluster_reading import ClusterReader
from service.adapters.redis.nodes import Node, Nodes
from service.adapters.redis.reading import Found, Reading
from service.adapters.redis.scripts import Call, Command
from service.adapters.redis.servers import Listening
from service.errors import ConfigError

#: Times that a call is sent on to another node before its last error counts.
REDIRECTIONS: Final = 4


@asynccontextmanager
async def open_cluster(url: str, options: BusOptions) -> AsyncIterator["Cluster"]:
    """Connect to the cluster of a node; raises `BusError`, and `ConfigError` where it is none."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(Nodes(stack, url, options))
        with bus_errors("connect"):
            try:
                await cluster.ping()
            except ResponseError as error:
                raise ConfigError(f"bus.url: not a cluster that can be used: {error}") from error
        stack.push_async_callback(cluster.close)
        yield cluster


class Cluster:
    """The `Servers` of a cluster."""

    undivided = False

    def __init__(self, nodes: Nodes) -> None:
        self.clock = ServerClock()
        self._nodes = nodes
        self._reader = ClusterReader(nodes, self.attempt)

    async def attempt(self, calls: Sequence[Call | Command]) -> list[Any]:
        """Run calls, those of one node in one round trip, all nodes at the same time.

        Raises:
            RedisError: No node is there at all.
        """
        replies: list[Any] = [None] * len(calls)
        places = list(range(len(calls)))
        for _ in range(REDIRECTIONS):
            asked = {place: self._nodes.of(calls[place].key) for place in places}
            await self._round(calls, asked, replies)
            places = await self._to_repeat(calls, asked, replies)
            if not places:
                break
        if any(map(is_away, replies)) and all(node.away for node in self._nodes.all):
            raise next(filter(is_away, replies))
        return replies

    async def read(self, reading: Reading) -> list[Found]:
        """Read new entries of streams, or wait for them."""
        return await self._reader.read(reading)

    def listening(self, channel: str) -> Listening:
        """Return what subscribes at the node that has the channel's name, or else at another."""
        return _Subscriptions(partial(self._near, channel))

    async def publish(self, channel: str, payload: bytes) -> int:
        """Send to a channel; returns how many heard it at that node, or else at the others."""
        call = Command(channel, ("PUBLISH", channel, payload))
        error: Any = None
        for node in self._near(channel):
            (reply,) = await node.attempt([call])
            if not is_away(reply):
                break
            error = reply
        else:
            raise error
        if isinstance(reply, Exception):
            raise reply
        return int(reply) or (await self.unheard([channel]))[0]

    async def unheard(self, channels: Sequence[str]) -> list[int]:
        """Return how many listen at all nodes: each knows its own subscribers only."""
        if not channels:
            return []
        names = list(dict.fromkeys(channels))
        call = Command("", ("PUBSUB NUMSUB", *names))
        told = await asyncio.gather(*(node.attempt([call]) for node in self._nodes.all))
        counts: defaultdict[str, int] = defaultdict(int)
        for (reply,) in told:
            for name, count in [] if isinstance(reply, Exception) else reply:
                counts[name.decode()] += count
        return [counts[channel] for channel in channels]

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Yield the keys of all nodes that match a glob."""
        for node in self._nodes.all:
            async for key in node.clients.commands.scan_iter(match=pattern, count=count):
                yield key.decode()

    async def ping(self) -> None:
        """Raise unless a node answers; sets the clock by it."""
        await self._nodes.refresh(now=True)
        for node in self._nodes.all:
            try:
                await self.clock.measure(node.clients.commands)
            except (RedisError, OSError) as error:
                node.lost(error)
                failure = error
            else:
                node.found()
                return
        raise failure

    async def close(self) -> None:
        """Give back the connections that waited for entries."""
        await self._reader.close()

    def _near(self, channel: str) -> Sequence[Node]:
        """Return the nodes, the one that has a channel's name first, unless it is away."""
        home = self._nodes.of(channel)
        return sorted(self._nodes.all, key=lambda node: (node.away, node is not home))

    async def _round(
        self,
        calls: Sequence[Call | Command],
        asked: Mapping[int, Node | None],
        replies: list[Any],
    ) -> None:
        """Send calls to their nodes, and put the replies in their places."""
        by_node: defaultdict[Node, list[int]] = defaultdict(list)
        for place, node in asked.items():
            if node is None:
                replies[place] = RedisError(f"no node of the cluster has {calls[place].key!r}")
            else:
                by_node[node].append(place)
        sent = [node.attempt([calls[each] for each in part]) for node, part in by_node.items()]
        told = await asyncio.gather(*sent) if len(sent) > 1 else [await each for each in sent]
        for part, answers in zip(by_node.values(), told, strict=True):
            for place, answer in zip(part, answers, strict=True):
                replies[place] = answer

    async def _to_repeat(
        self,
        calls: Sequence[Call | Command],
        asked: Mapping[int, Node | None],
        replies: list[Any],
    ) -> list[int]:
        """Follow where nodes send us; return the calls that have to be sent to another node."""
        lost = [place for place in asked if is_away(replies[place])]
        if lost and not all(node.away for node in self._nodes.all):
            await self._nodes.refresh()
        again = [place for place in lost if self._nodes.of(calls[place].key) is not asked[place]]
        for place in asked:
            reply = replies[place]
            if isinstance(reply, MovedError):
                self._nodes.moved(reply)
                again.append(place)
            elif isinstance(reply, AskError):
                node = self._nodes.target(reply)
                replies[place] = await node.attempt_asking(calls[place])
        return again


class _Subscriptions:
    """Subscriptions to a channel, at the nearest node; where one was lost, at another."""

    def __init__(self, near: Callable[[], Sequence[Node]]) -> None:
        self._near = near
        self._last: Node | None = None

    def pubsub(self) -> PubSub:
        nodes = self._near()
        self._last = next((node for node in nodes if node is not self._last), nodes[0])
        return self._last.clients.listening.pubsub()
