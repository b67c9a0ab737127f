"""The bus on Redis or Valkey: streams with consumer groups, and channels."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from math import ceil
from typing import Any, Final

import structlog

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import forget_letters
from service.adapters.redis.admin import (
    RedisDeadLetters,
    RedisRequestShards,
    count_entries,
    forget_values,
)
from service.adapters.redis.clients import check_url
from service.adapters.redis.cluster import open_cluster
from service.adapters.redis.driver import Call, Command, bus_errors, is_unavailable, is_unusable_key
from service.adapters.redis.finishing import Finisher
from service.adapters.redis.inbox import RedisInbox
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.scripts import ENQUEUE, RENUMBER
from service.adapters.redis.servers import Servers, open_server, raise_first_error
from service.adapters.redis.shards import REPORT, RESULT, Shard, Shards, all_topics, report_key
from service.ports.bus import RECALL_FIELD, Answer, Enqueued, Forgotten, Identity, Receipt
from service.wire.protocol import ROW_TOPICS, SIDE_TOPICS, Topics
from service.wire.response import StoredResult, unpack_result

log = structlog.get_logger(__name__)

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


def open_servers(url: str, options: BusOptions) -> AbstractAsyncContextManager[Servers]:
    """Connect to one server, or to a cluster; raises `BusError`, and `ConfigError`."""
    node = _node_of(url)
    return open_server(url, options) if node == url else open_cluster(node, options)


def check_bus_url(url: str, options: BusOptions) -> None:
    """Raise `ConfigError` for a URL and options that can't be used; nothing connects."""
    check_url(_node_of(url), options)


def _node_of(url: str) -> str:
    """Return the URL of a node of a cluster, or the URL itself if it names none."""
    scheme, separator, rest = url.partition("://")
    return scheme.removesuffix(CLUSTER) + separator + rest


class RedisBus:
    """The `Bus` over one server, or a cluster.

    Calls are sent again after a lost connection, which does no harm, except that `submit`,
    `append` and `publish` may then double the entry or the message.
    """

    def __init__(self, servers: Servers, options: BusOptions) -> None:
        async def row_topics() -> Sequence[str]:
            return ROW_TOPICS

        async def recall_topics() -> Sequence[str]:
            return (Topics.CONTEXT_RECALL_REQUEST,)

        self.shards = Shards(servers, options.prefix, options.result_ttl_seconds)
        self.requests = RedisInbox(servers, self.shards.refresh, options.group, options)
        self.recalls = RedisInbox(servers, recall_topics, options.group, options)
        self.results = RedisInbox(servers, row_topics, options.results_group, options)
        self.reports = RedisReports(servers, options.prefix)
        self.dead_letters = RedisDeadLetters(servers, options.prefix, SIDE_TOPICS)
        self.request_shards = RedisRequestShards(servers, options.prefix, options.group)
        self._streams = [options.prefix + topic for topic in (*all_topics(), *SIDE_TOPICS)]
        self._servers = servers
        self._finisher = Finisher(servers, self.shards, options)
        self._options = options
        self._ingress: list[Subscription] = []
        #: What former subscriptions of the ingress counted.
        self._resubscribed = self._dropped = 0

    @property
    def forbidden(self) -> int:
        """Return how many replies the server's ACL rules forbade."""
        return self._finisher.forbidden

    @property
    def resubscribed(self) -> int:
        """Return how often a channel of requests was lost and subscribed again."""
        return self._resubscribed + sum(each.resubscribed for each in self._ingress)

    @property
    def dropped(self) -> int:
        """Return how many requests arrived on channels faster than they were taken."""
        return self._dropped + sum(each.arrivals.dropped for each in self._ingress)

    def now(self) -> datetime:
        """Return the server's time, as last measured by `ping`."""
        return self._servers.clock.now()

    @asynccontextmanager
    async def subscribe_requests(
        self, topic: str = Topics.CONTEXT_BUILD_REQUEST
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Subscribe to a channel of requests; yields batches of payloads, across reconnects."""
        # the channel has the stream's name: Redis keeps channels apart from keys
        subscription = Subscription(self._servers, self._options.prefix + topic)
        self._ingress.append(subscription)
        seconds = self._options.socket_timeout_seconds
        try:
            async with following(subscription, confirm_seconds=seconds):
                yield subscription.arrivals.batches()
        finally:
            self._ingress.remove(subscription)
            self._resubscribed += subscription.resubscribed
            self._dropped += subscription.arrivals.dropped

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to a channel, given by its full name."""
        subscription = Subscription(self._servers, channel)
        async with following(subscription, confirm_seconds=self._options.socket_timeout_seconds):
            yield subscription.arrivals

    async def enqueue(
        self, payloads: Sequence[bytes], topic: str = Topics.CONTEXT_BUILD_REQUEST
    ) -> list[Enqueued]:
        """Add payloads from a channel to the request stream, once over all workers."""
        options = self._options
        more = (RECALL_FIELD, "") if topic == Topics.CONTEXT_RECALL_REQUEST else ()
        await self.shards.recount()
        backlog = ceil(options.max_backlog / self.shards.count)
        limits = (options.consumer, int(options.heard_ttl_seconds * 1000), backlog)
        calls = []
        for payload in payloads:
            shard = Shard(options.prefix, await self.shards.topic_of(payload))
            heard = shard.heard("".join(more).encode() + payload)  # one for each topic
            calls.append(Call(ENQUEUE, (heard, shard.stream), (*limits, payload, *more)))
        with bus_errors("enqueue"):
            replies = await self._servers.execute(calls)
            return [_enqueued(*pair) for pair in zip(calls, replies, strict=True)]

    async def submit(self, payload: bytes, *, recall: str | None = None) -> str:
        """Add a request to the stream; returns the entry's id."""
        await self.shards.recount()
        more = () if recall is None else (RECALL_FIELD, recall)
        return await self.append(await self.shards.topic_of(payload), payload, *more)

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

    async def append(self, topic: str, payload: bytes, *more: str) -> str:
        """Add an entry to a stream, with ``more`` fields after the payload; returns its id."""
        key = self._options.prefix + topic
        command = Command("XADD", key, "*", "data", payload, *more)
        return str(await self._servers.run_one(f"append to {key}", command), "ascii")

    async def renumber(self) -> list[str]:
        """Recreate streams that take no more entries, each in one atomic step; return them."""
        topics = [*all_topics(), *SIDE_TOPICS, Topics.CONTEXT_BUILD_DEAD]
        shards = [Shard(self._options.prefix, topic) for topic in topics]
        calls = [Call(RENUMBER, (shard.stream, shard.renewal)) for shard in shards]
        replies = await self._servers.run("renumber streams", calls)
        return [topic for topic, reply in zip(topics, replies, strict=True) if reply]

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, reports and dead letters, or only count them."""
        dead, unreadable = await forget_letters(self.dead_letters, owner_key, dry_run=dry_run)
        prefix = self._options.prefix
        forget = partial(forget_values, self._servers, owner_key=owner_key, dry_run=dry_run)
        return Forgotten(
            results=await forget(prefix + RESULT, "response"),
            reports=await forget(prefix + REPORT, "request"),
            dead_letters=dead,
            unreadable=unreadable,
            waiting=await count_entries(self._servers, self._streams, owner_key),
        )

    async def ping(self) -> None:
        """Raise `BusError` unless the bus answers; measures its clock."""
        with bus_errors("ping"):
            await self._servers.ping()


def _enqueued(call: Call, reply: Any) -> Enqueued:  # noqa: ANN401 - the server's
    """Return the outcome of an `ENQUEUE`; raises the server's error."""
    if is_unavailable(reply):
        return Enqueued.UNAVAILABLE
    if is_unusable_key(reply):  # the inbox logs it, once
        return Enqueued.UNUSABLE
    if isinstance(reply, Exception):
        raise reply
    if reply == b"alone":
        log.error("bus.key_unusable", key=call.keys[0], reason="it holds no set", fix="ctxb doctor")
        return Enqueued.ENQUEUED
    return Enqueued(reply.decode())


def _first_answer(replies: Sequence[Any]) -> StoredResult | None:
    """Return the first stored answer, without those of unavailable nodes and unusable keys."""
    if not any(replies):
        return None  # as for nearly all requests
    usable = [reply for reply in replies if not (is_unavailable(reply) or is_unusable_key(reply))]
    available = raise_first_error(usable)
    return next((value for value in map(unpack_result, available) if value is not None), None)


class RedisReports:
    """The `ReportStore` over one server, or a cluster."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Store reports by build id, in one round trip per server."""
        life = max(1, int(ttl_seconds * 1000))
        named = {report_key(build_id, self._prefix): report for build_id, report in reports.items()}
        calls = [Command("SET", key, value, "PX", life) for key, value in named.items()]
        await self._servers.run("store build reports", calls)

    async def get(self, build_id: str) -> bytes | None:
        """Return the report of a build, or None."""
        command = Command("GET", report_key(build_id, self._prefix))
        report: bytes | None = await self._servers.run_one("read a build report", command)
        return report

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a report, in one round trip per server."""
        calls = [Command("EXISTS", report_key(build_id, self._prefix)) for build_id in build_ids]
        counts = await self._servers.run("look for build reports", calls)
        return frozenset(name for name, count in zip(build_ids, counts, strict=True) if count)
