"""The bus on Redis or Valkey: streams with consumer groups, and channels."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from math import ceil
from typing import Any

from service.adapters.arrivals import Arrivals, Batches, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import unpack
from service.adapters.redis.client import bus_errors, is_away
from service.adapters.redis.dead_letters import RedisDeadLetters
from service.adapters.redis.division import RedisDivision
from service.adapters.redis.erasure import RedisErasure
from service.adapters.redis.finishing import Finisher
from service.adapters.redis.inbox import FixedStreams, RedisInbox
from service.adapters.redis.keys import Shard
from service.adapters.redis.opening import open_servers
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.reports import RedisReports
from service.adapters.redis.scripts import ENQUEUE, Call, Command
from service.adapters.redis.servers import Servers, ask
from service.adapters.redis.shards import Shards, all_topics
from service.ports.bus import Answer, Enqueued, Forgotten, Identity, Receipt, StoredResult
from service.wire.protocol import Topics


@asynccontextmanager
async def open_redis_bus(url: str, options: BusOptions | None = None) -> AsyncIterator["RedisBus"]:
    """Connect to the server at ``url``; raises `BusError` where none answers, and `ConfigError`.

    ``redis://``, ``rediss://`` and ``unix://`` are understood, with user and password, and
    ``redis+cluster://`` and ``rediss+cluster://`` for any node of a cluster.
    """
    options = options or BusOptions()
    async with open_servers(url, options) as servers:
        bus = RedisBus(servers, options)
        # it has to know how many shards there are
        await bus.shards.recount()
        yield bus


class RedisBus:
    """The `Bus` over one server, or a cluster.

    All calls bear being sent twice, and are after a lost connection, but for `submit`, `append`,
    `publish` and `tell`: there the entry or the message may then be doubled.
    """

    def __init__(self, servers: Servers, options: BusOptions) -> None:
        results = [Topics.LLM_RESULTS, Topics.TOOLS_RESULTS]
        self.shards = Shards(servers, options.prefix, options.result_ttl_seconds)
        self.requests = RedisInbox(servers, self.shards, options.group, options)
        self.results = RedisInbox(servers, FixedStreams(results), options.results_group, options)
        self.reports = RedisReports(servers, options.prefix)
        self.dead_letters = RedisDeadLetters(servers, options.prefix, results)
        self.division = RedisDivision(servers, options.prefix, options.group)
        self._streams = [options.prefix + topic for topic in (*all_topics(), *results)]
        self._servers = servers
        self._finisher = Finisher(servers, self.shards, options)
        self._options = options
        self._ingress: list[Subscription] = []

    @property
    def forbidden(self) -> int:
        """Return how many replies the server's rules kept this worker from writing."""
        return self._finisher.forbidden

    @property
    def resubscribed(self) -> int:
        """Return how often the request channel was lost and found: requests may be missing."""
        return sum(subscription.resubscribed for subscription in self._ingress)

    @property
    def dropped(self) -> int:
        """Return how many requests came over the channel faster than they were taken."""
        return sum(subscription.arrivals.dropped for subscription in self._ingress)

    def now(self) -> datetime:
        """Return the server's time, as last measured by `ping`."""
        return self._servers.clock.now()

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Listen on the request channel; yields what came in, in batches, across reconnects."""
        # The channel bears the stream's name: Redis keeps the two apart.
        subscription = self._subscription(Shard(self._options.prefix).stream)
        self._ingress.append(subscription)
        async with following(subscription, confirm_seconds=self._options.socket_timeout):
            yield Batches(subscription.arrivals)

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, named in full; it stands when the context is entered."""
        subscription = self._subscription(channel)
        async with following(subscription, confirm_seconds=self._options.socket_timeout):
            yield Singles(subscription.arrivals)

    async def enqueue(self, payloads: Sequence[bytes]) -> list[Enqueued]:
        """Put what was heard into the request stream, each copy once over all workers."""
        options = self._options
        await self.shards.recount()
        backlog = ceil(options.max_backlog / self.shards.count)
        limits = (options.consumer, int(options.heard_ttl_seconds * 1000), backlog)
        calls = []
        for payload in payloads:
            shard = Shard(options.prefix, await self.shards.topic_of(payload))
            calls.append(Call(ENQUEUE, (shard.heard(payload), shard.stream), (*limits, payload)))
        with bus_errors("enqueue"):
            return [_fate(reply) for reply in await self._servers.attempt(calls)]

    async def submit(self, payload: bytes) -> str:
        """Put a request into the stream durably; returns the entry's id."""
        await self.shards.recount()
        return await self.append(await self.shards.topic_of(payload), payload)

    async def stored(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the answers that these requests already got."""
        if not identities:
            return []
        await self.shards.recount()
        places = [self.shards.result_keys(identity) for identity in identities]
        with bus_errors("read stored answers"):
            replies = iter(await self._values([key for keys in places for key in keys]))
            return [_first([next(replies) for _ in keys]) for keys in places]

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and settle, each answer in one atomic step, all in one round trip.

        In a cluster, replies to lists and streams, and dead letters, take a step more each.
        """
        with bus_errors("finish"):
            return await self._finisher.finish(answers)

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns how many subscribers heard it."""
        return await self.tell(self._options.prefix + topic, payload)

    async def tell(self, channel: str, payload: bytes) -> int:
        """Send to a channel named in full; returns how many subscribers heard it."""
        with bus_errors("publish"):
            return await self._servers.publish(channel, payload)

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        key = self._options.prefix + topic
        with bus_errors("append"):
            call = Command(key, ("XADD", key, "*", "data", payload))
            entry: bytes = await ask(self._servers, call)
            return entry.decode()

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, reports and dead letters, or only count them."""
        erasure = RedisErasure(
            servers=self._servers,
            prefix=self._options.prefix,
            dead_letters=self.dead_letters,
            streams=self._streams,
            owner_key=owner_key,
            dry_run=dry_run,
        )
        return await erasure.forget()

    async def ping(self) -> None:
        """Raise `BusError` unless the bus answers; sets the clock by it."""
        with bus_errors("ping"):
            await self._servers.ping()

    async def _values(self, keys: Sequence[str]) -> Sequence[Any]:
        """Return the values of keys; in a cluster, an error in place of each that is away."""
        if self._servers.undivided:
            values: Sequence[Any] = await ask(self._servers, Command(keys[0], ("MGET", *keys)))
            return values
        return await self._servers.attempt([Command(key, ("GET", key)) for key in keys])

    def _subscription(self, channel: str) -> Subscription:
        return Subscription(self._servers.listening(channel), channel, Arrivals(channel))


def _fate(reply: Any) -> Enqueued:  # noqa: ANN401 - the server's
    """Read what became of a payload; raises what a server answers where it refuses."""
    if is_away(reply):
        return Enqueued.AWAY
    if isinstance(reply, Exception):
        raise reply
    return Enqueued(reply.decode())


def _first(replies: Sequence[Any]) -> StoredResult | None:
    """Return the first answer among those that there are; a node that is away has none to give."""
    for reply in replies:
        if isinstance(reply, Exception) and not is_away(reply):
            raise reply
    values = (unpack(reply) for reply in replies if not isinstance(reply, Exception))
    return next((value for value in values if value is not None), None)
