"""Streams of Redis read by a consumer group."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from redis.exceptions import ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields
from service.adapters.redis.connection import (
    GroupMissingError,
    as_bus_error,
    bus_errors,
    is_unavailable,
)
from service.adapters.redis.scripts import (
    CHANGE_LEASE,
    CLAIM,
    DEAD_LETTER,
    LEAVE,
    TRIM,
    Argument,
    Call,
    Command,
    Script,
    flatten,
)
from service.adapters.redis.servers import Reading, Servers, run
from service.ports.stream import Delivery, Depth
from service.wire.protocol import Topics

log = structlog.get_logger(__name__)


class Streams(Protocol):
    """The streams to read, which may change meanwhile."""

    @property
    def topics(self) -> Sequence[str]:
        """Return their names, without the prefix."""
        ...

    async def refresh(self) -> None:
        """Look up which they are, if that is due; raises `BusError`."""
        ...


@dataclass(frozen=True, slots=True)
class FixedStreams:
    """Streams that never change."""

    topics: Sequence[str]

    async def refresh(self) -> None:
        """Do nothing."""


class RedisInbox:
    """An `Inbox` over one or more streams with the same consumer group.

    The group is created with the first read, to start at the first entry, and again if it is lost.
    In a cluster, the entries on an unavailable node wait there; the others are delivered.
    """

    def __init__(self, servers: Servers, streams: Streams, group: str, options: BusOptions) -> None:
        self._servers = servers
        self._streams = streams
        self._group = group
        self._options = options
        self._lease_ms = int(options.lease_seconds * 1000)
        #: The topics whose group exists.
        self._grouped: set[str] = set()
        #: Where the next read starts among the streams.
        self._start = 0

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        if slots < 1:
            return []
        await self._streams.refresh()
        await self._create_groups()
        reading = Reading(
            group=self._group,
            consumer=self._options.consumer,
            keys=self._next_keys(slots),
            slots=slots,
            wait=wait,
            patience=self._options.socket_timeout_seconds,
        )
        try:
            with bus_errors("receive"):
                entries = await self._servers.read(reading)
        except GroupMissingError:
            self._grouped.clear()
            await self._create_groups()
            return []
        return [
            self._delivery(stream.removeprefix(self._options.prefix), entry, fields, 1)
            for stream, (entry, fields) in entries
        ]

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has expired, and count an attempt."""
        await self._streams.refresh()
        claimed: list[Delivery] = []
        for topic in self._topics:
            if len(claimed) >= slots:
                break
            call = self._call(CLAIM, topic, self._lease_ms, slots - len(claimed))
            (reply,) = await self._run_scripts([call])
            entries, lost = reply or ((), ())
            if lost:
                log.error("bus.entries_lost", stream=self._key(topic), count=len(lost))
            for entry, parts, attempt in entries:
                fields = dict(zip(parts[::2], parts[1::2], strict=True))
                claimed.append(self._delivery(topic, entry.decode(), fields, attempt))
        return claimed

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        await self._change_lease(deliveries, "IDLE", 0)

    async def reset_attempts(self, deliveries: Sequence[Delivery]) -> None:
        """Renew those that this worker still holds, and reset their attempts to 1."""
        await self._change_lease(deliveries, "RETRYCOUNT", 1)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds expire now."""
        await self._change_lease(deliveries, "IDLE", self._lease_ms)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Ack deliveries that need no answer."""
        calls = [
            Command(self._key(source), ("XACK", self._key(source), self._group, *tokens))
            for source, tokens in _tokens_by_source(deliveries).items()
        ]
        with bus_errors("ack"):
            await run(self._servers, calls)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead-letter stream and ack it, if this worker still holds it."""
        fields = flatten(dead_letter_fields(delivery, reason, self._servers.clock.now()))
        keys = (self._key(delivery.source), self._key(Topics.CONTEXT_BUILD_DEAD))
        holder = (self._group, self._options.consumer, delivery.token)
        arguments = (*holder, self._options.dead_max_length, *fields)
        await self._run_scripts([Call(DEAD_LETTER, keys, arguments)])

    async def trim(self) -> None:
        """Delete the entries that every group has read and acked."""
        await self._streams.refresh()
        await self._run_scripts([Call(TRIM, (self._key(topic),), ()) for topic in self._topics])

    async def depth(self) -> Depth:
        """Count the entries that wait for the group, and those that are pending in it."""
        await self._streams.refresh()
        calls = [
            Command(key, parts)
            for key in map(self._key, self._topics)
            for parts in (("XINFO GROUPS", key), ("XPENDING", key, self._group))
        ]
        with bus_errors("count the entries that wait"):
            replies = await run(self._servers, calls)
        name, pending = self._group.encode(), replies[1::2]
        groups = [group for reply in replies[::2] for group in reply if group["name"] == name]
        # null after entries amid a stream were deleted; missing before Redis 7
        lags = [group.get("lag") for group in groups]
        clock = self._servers.clock
        written = [clock.written_at(each["min"].decode()) for each in pending if each["min"]]
        now = clock.now()
        return Depth(
            lag=None if None in lags else sum(lags),
            pending=sum(each["pending"] for each in pending),
            oldest_pending_seconds=max(0.0, (now - min(written, default=now)).total_seconds()),
        )

    async def leave(self) -> None:
        """Take this worker out of the group, unless it still holds entries."""
        await self._run_scripts([self._call(LEAVE, topic) for topic in self._topics])

    @property
    def _topics(self) -> Sequence[str]:
        return self._streams.topics

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic

    def _next_keys(self, slots: int) -> Sequence[str]:
        """Return the keys of the streams with a group, starting at another one each time."""
        topics = [topic for topic in self._topics if topic in self._grouped]
        start = self._start % max(1, len(topics))
        self._start = start + min(slots, len(topics))
        return [*map(self._key, topics[start:] + topics[:start])]

    def _delivery(
        self, source: str, entry: str, fields: Mapping[bytes, bytes], attempt: int
    ) -> Delivery:
        return Delivery(
            source=source,
            token=entry,
            payload=fields.get(b"data", b""),
            received_at=self._servers.clock.written_at(entry),
            attempt=attempt,
        )

    async def _create_groups(self) -> None:
        """Create the missing groups, except on unavailable nodes."""
        topics = [topic for topic in self._topics if topic not in self._grouped]
        if not topics:
            return
        keys = [*map(self._key, topics)]
        calls = [Command(key, ("XGROUP CREATE", key, self._group, "0", "MKSTREAM")) for key in keys]
        with bus_errors("create the group"):
            replies = await self._servers.execute(calls)
        for topic, key, reply in zip(topics, keys, replies, strict=True):
            if isinstance(reply, ResponseError) and "BUSYGROUP" not in str(reply):
                raise as_bus_error(f"create the group of {key}", reply) from reply
            if is_unavailable(reply):
                continue
            self._grouped.add(topic)
            if not isinstance(reply, Exception):
                log.info("bus.group_created", stream=key, group=self._group)

    async def _change_lease(self, deliveries: Sequence[Delivery], option: str, value: int) -> None:
        calls = [
            self._call(CHANGE_LEASE, source, option, value, *tokens)
            for source, tokens in _tokens_by_source(deliveries).items()
        ]
        await self._run_scripts(calls)

    def _call(self, script: Script, topic: str, *arguments: Argument) -> Call:
        """Return a call of a script on a stream for this consumer."""
        return Call(script, (self._key(topic),), (self._group, self._options.consumer, *arguments))

    async def _run_scripts(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts; a reply is None if the group was missing or the node is unavailable.

        Missing groups are created.
        """
        with bus_errors("run a script"):
            replies = await self._servers.execute(calls)
        missing = False
        for reply in replies:
            if isinstance(reply, ResponseError):
                error = as_bus_error("run a script", reply)
                if not isinstance(error, GroupMissingError):
                    raise error from reply
                missing = True
        if missing:
            self._grouped.clear()
            await self._create_groups()
        return [None if isinstance(reply, Exception) else reply for reply in replies]


def _tokens_by_source(deliveries: Sequence[Delivery]) -> Mapping[str, list[str]]:
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        tokens[delivery.source].append(delivery.token)
    return tokens
