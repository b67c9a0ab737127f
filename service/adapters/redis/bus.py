"""The bus on Redis or Valkey: streams with consumer groups, and channels."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from math import ceil
from typing import Any, Final

from service.adapters.arrivals import Arrivals, Batches, Singles
from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import unpack
from service.adapters.redis.admin import RedisDeadLetters, RedisErasure, RedisRequestShards
from service.adapters.redis.cluster import open_cluster
from service.adapters.redis.connection import bus_errors, is_unavailable, open_clients
from service.adapters.redis.finishing import Finisher
from service.adapters.redis.inbox import FixedStreams, RedisInbox
from service.adapters.redis.keys import Shard
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.reports import RedisReports
from service.adapters.redis.scripts import ENQUEUE, Call, Command
from service.adapters.redis.servers import OneServer, Servers, run_one
from service.adapters.redis.shards import Shards, all_topics
from service.ports.bus import Answer, Enqueued, Forgotten, Identity, Receipt, StoredResult
from service.wire.protocol import Topics

#: The end of a URL's scheme that names a node of a cluster.
CLUSTER: Final = "+cluster"


@asynccontextmanager
async def open_redis_bus(url: str, options: BusOptions | None = None) -> AsyncIterator["RedisBus"]:
    """Connect to the server at ``url``; raises `BusError` if it does not answer, and `ConfigError`.

    Schemes: ``redis://``, ``rediss://`` and ``unix://``, with user and password; and
    ``redis+cluster://`` and ``rediss+cluster://`` for any node of a cluster.
    """
    options = options or BusOptions()
    async with open_servers(url, options) as servers:
        bus = RedisBus(servers, options)
        await bus.shards.recount()
        yield bus


@asynccontextmanager
async def open_servers(url: str, options: BusOptions) -> AsyncIterator[Servers]:
    """Connect to one server, or to a cluster; raises `BusError`, and `ConfigError`."""
    scheme, separator, rest = url.partition("://")
    if scheme.endswith(CLUSTER):
        plain = scheme.removesuffix(CLUSTER) + separator + rest
        async with open_cluster(plain, options) as cluster:
            yield cluster
        return
    async with open_clients(url, options) as clients:
        yield OneServer(clients)


class RedisBus:
    """The `Bus` over one server, or a cluster.

    Calls are sent again after a lost connection, which does no harm, except that `submit`,
    `append`, `publish` and `tell` may then double the entry or the message.
    """

    def __init__(self, servers: Servers, options: BusOptions) -> None:
        results = [Topics.LLM_RESULTS, Topics.TOOLS_RESULTS]
        self.shards = Shards(servers, options.prefix, options.result_ttl_seconds)
        self.requests = RedisInbox(servers, self.shards, options.group, options)
        self.results = RedisInbox(servers, FixedStreams(results), options.results_group, options)
        self.reports = RedisReports(servers, options.prefix)
        self.dead_letters = RedisDeadLetters(servers, options.prefix, results)
        self.request_shards = RedisRequestShards(servers, options.prefix, options.group)
        self._streams = [options.prefix + topic for topic in (*all_topics(), *results)]
        self._servers = servers
        self._finisher = Finisher(servers, self.shards, options)
        self._options = options
        self._ingress: list[Subscription] = []

    @property
    def forbidden(self) -> int:
        """Return how many replies the server's ACL rules forbade."""
        return self._finisher.forbidden

    @property
    def resubscribed(self) -> int:
        """Return how often the request channel was lost and subscribed again."""
        return sum(subscription.resubscribed for subscription in self._ingress)

    @property
    def dropped(self) -> int:
        """Return how many requests arrived on the channel faster than they were taken."""
        return sum(subscription.arrivals.dropped for subscription in self._ingress)

    def now(self) -> datetime:
        """Return the server's time, as last measured by `ping`."""
        return self._servers.clock.now()

    @asynccontextmanager
    async def subscribe_requests(self) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Subscribe to the request channel; yields batches of payloads, across reconnects."""
        # the channel has the stream's name: Redis keeps channels apart from keys
        subscription = self._subscription(Shard(self._options.prefix).stream)
        self._ingress.append(subscription)
        async with following(subscription, confirm_seconds=self._options.socket_timeout_seconds):
            yield Batches(subscription.arrivals)

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, given by its full name."""
        subscription = self._subscription(channel)
        async with following(subscription, confirm_seconds=self._options.socket_timeout_seconds):
            yield Singles(subscription.arrivals)

    async def enqueue(self, payloads: Sequence[bytes]) -> list[Enqueued]:
        """Add payloads from the channel to the request stream, once over all workers."""
        options = self._options
        await self.shards.recount()
        backlog = ceil(options.max_backlog / self.shards.count)
        limits = (options.consumer, int(options.heard_ttl_seconds * 1000), backlog)
        calls = []
        for payload in payloads:
            shard = Shard(options.prefix, await self.shards.topic_of(payload))
            calls.append(Call(ENQUEUE, (shard.heard(payload), shard.stream), (*limits, payload)))
        with bus_errors("enqueue"):
            return [_enqueued(reply) for reply in await self._servers.execute(calls)]

    async def submit(self, payload: bytes) -> str:
        """Add a request to the stream; returns the entry's id."""
        await self.shards.recount()
        return await self.append(await self.shards.topic_of(payload), payload)

    async def find_results(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the stored answers to these requests, or None."""
        if not identities:
            return []
        await self.shards.recount()
        groups = [self.shards.result_keys(identity) for identity in identities]
        with bus_errors("read stored answers"):
            replies = iter(await self._servers.get([key for keys in groups for key in keys]))
            return [_first_answer([next(replies) for _ in keys]) for keys in groups]

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and ack, each answer in one atomic step, all in one round trip.

        In a cluster, replies to lists and streams, and dead letters, take further steps.
        """
        with bus_errors("finish"):
            return await self._finisher.finish(answers)

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns the number of subscribers."""
        return await self.publish_to(self._options.prefix + topic, payload)

    async def publish_to(self, channel: str, payload: bytes) -> int:
        """Send to a channel, given by its full name; returns the number of subscribers."""
        with bus_errors("publish"):
            return await self._servers.publish(channel, payload)

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        key = self._options.prefix + topic
        with bus_errors("append"):
            command = Command(key, ("XADD", key, "*", "data", payload))
            entry: bytes = await run_one(self._servers, command)
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
        """Raise `BusError` unless the bus answers; measures its clock."""
        with bus_errors("ping"):
            await self._servers.ping()

    def _subscription(self, channel: str) -> Subscription:
        return Subscription(self._servers.subscriber(channel), channel, Arrivals(channel))


def _enqueued(reply: Any) -> Enqueued:  # noqa: ANN401 - the server's
    """Return the outcome of an `ENQUEUE`; raises the server's error."""
    if is_unavailable(reply):
        return Enqueued.UNAVAILABLE
    if isinstance(reply, Exception):
        raise reply
    return Enqueued(reply.decode())


def _first_answer(replies: Sequence[Any]) -> StoredResult | None:
    """Return the first stored answer; replies of unavailable nodes are skipped."""
    for reply in replies:
        if isinstance(reply, Exception) and not is_unavailable(reply):
            raise reply
    values = (unpack(reply) for reply in replies if not isinstance(reply, Exception))
    return next((value for value in values if value is not None), None)
