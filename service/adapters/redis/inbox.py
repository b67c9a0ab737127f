"""Streams of Redis read by a consumer group."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog
from redis.exceptions import ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields
from service.adapters.redis.client import GroupMissingError, bus_errors, is_away
from service.adapters.redis.depth import depth
from service.adapters.redis.reading import Reading
from service.adapters.redis.round_trip import Argument
from service.adapters.redis.scripts import (
    CLAIM,
    DEAD_LETTER,
    HOLD_ON,
    LEAVE,
    TRIM,
    Call,
    Command,
    Script,
    flat,
)
from service.adapters.redis.servers import Servers, run
from service.adapters.redis.steps import Steps
from service.ports.stream import Delivery, Depth
from service.wire.protocol import Topics

log = structlog.get_logger()


class Streams(Protocol):
    """Which streams are read; that may change while they are."""

    @property
    def topics(self) -> Sequence[str]:
        """Return their names, without the prefix."""
        ...

    async def refresh(self) -> None:
        """Look up which they are, if that is due; raises `BusError`."""
        ...


@dataclass(frozen=True, slots=True)
class FixedStreams:
    """Streams that are always the same."""

    topics: Sequence[str]

    async def refresh(self) -> None:
        """Do nothing."""


class RedisInbox:
    """An `Inbox` over one or more streams, which share the consumer group.

    The group is created with the first read, from the first entry on, and again where it is lost.
    In a cluster, what lies on a node that is away waits there; the rest goes on.
    """

    def __init__(self, servers: Servers, streams: Streams, group: str, options: BusOptions) -> None:
        self._servers = servers
        self._streams = streams
        self._group = group
        self._options = options
        self._lease_ms = int(options.lease_seconds * 1000)
        self._steps = Steps(servers, replace(options, group=group))
        #: Streams for which there is a group.
        self._grouped: set[str] = set()
        self._turn = 0

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
            patience=self._options.socket_timeout,
        )
        try:
            with bus_errors("receive"):
                found = await self._servers.read(reading)
        except GroupMissingError:
            self._grouped.clear()
            await self._create_groups()
            return []
        return [
            self._delivery(stream.removeprefix(self._options.prefix), entry, fields, 1)
            for stream, (entry, fields) in found
        ]

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has run out; raises their attempt."""
        await self._streams.refresh()
        claimed: list[Delivery] = []
        for topic in self._topics:
            if len(claimed) >= slots:
                break
            call = self._call(CLAIM, topic, self._lease_ms, slots - len(claimed))
            (reply,) = await self._attempt([call])
            found, lost = reply or ((), ())
            if lost:
                log.error("bus.entries_lost", stream=self._key(topic), count=len(lost))
            for entry, parts, attempt in found:
                fields = dict(zip(parts[::2], parts[1::2], strict=True))
                claimed.append(self._delivery(topic, entry.decode(), fields, attempt))
        return claimed

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        await self._hold_on(deliveries, "IDLE", 0)

    async def forgive(self, deliveries: Sequence[Delivery]) -> None:
        """Renew those that this worker still holds, and count this attempt as their first."""
        await self._hold_on(deliveries, "RETRYCOUNT", 1)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds run out now."""
        await self._hold_on(deliveries, "IDLE", self._lease_ms)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that need no answer."""
        calls = [
            Command(self._key(source), ("XACK", self._key(source), self._group, *tokens))
            for source, tokens in _by_source(deliveries).items()
        ]
        with bus_errors("ack"):
            await run(self._servers, calls)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead letter and settle it, in one step, while it is ours."""
        stream, token = self._key(delivery.source), delivery.token
        fields = flat(dead_letter_fields(delivery, reason, self._servers.clock.now()))
        if not self._servers.undivided:
            try:
                with bus_errors("bury"):
                    await self._steps.dead_letter(stream, token, fields)
            except GroupMissingError:
                self._grouped.clear()
                await self._create_groups()
            return
        arguments = (self._group, self._options.consumer, token, self._options.dead_max_length)
        keys = (stream, self._key(Topics.CONTEXT_BUILD_DEAD))
        await self._attempt([Call(DEAD_LETTER, keys, (*arguments, *fields))])

    async def trim(self) -> None:
        """Delete entries that every group has read and settled, and no others."""
        await self._streams.refresh()
        await self._attempt([Call(TRIM, (self._key(topic),), ()) for topic in self._topics])

    async def depth(self) -> Depth:
        """Tell how much waits for the group, and how much is in work."""
        await self._streams.refresh()
        return await depth(self._servers, [*map(self._key, self._topics)], self._group)

    async def leave(self) -> None:
        """Take this worker out of the group, unless it still holds entries."""
        await self._attempt([self._call(LEAVE, topic) for topic in self._topics])

    @property
    def _topics(self) -> Sequence[str]:
        return self._streams.topics

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic

    def _next_keys(self, slots: int) -> Sequence[str]:
        """Return the keys of the streams that can be read, another one first each time."""
        topics = [topic for topic in self._topics if topic in self._grouped]
        start = self._turn % max(1, len(topics))
        self._turn = start + min(slots, len(topics))
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
        """Create the group where there is none yet, but for streams whose node is away."""
        topics = [topic for topic in self._topics if topic not in self._grouped]
        if not topics:
            return
        calls = [self._creation(self._key(topic)) for topic in topics]
        with bus_errors("create the group"):
            replies = await self._servers.attempt(calls)
        for topic, reply in zip(topics, replies, strict=True):
            with bus_errors(f"create the group of {self._key(topic)}"):
                if isinstance(reply, ResponseError) and "BUSYGROUP" not in str(reply):
                    raise reply
            if not is_away(reply):
                self._grouped.add(topic)
                if not isinstance(reply, Exception):
                    log.info("bus.group_created", stream=self._key(topic), group=self._group)

    def _creation(self, key: str) -> Command:
        return Command(key, ("XGROUP CREATE", key, self._group, "0", "MKSTREAM"))

    async def _hold_on(self, deliveries: Sequence[Delivery], option: str, value: int) -> None:
        """Claim anew, with an option of XCLAIM, what this worker still holds."""
        calls = [
            self._call(HOLD_ON, source, option, value, *tokens)
            for source, tokens in _by_source(deliveries).items()
        ]
        await self._attempt(calls)

    def _call(self, script: Script, topic: str, *arguments: Argument) -> Call:
        """Return a script on a stream for this consumer."""
        return Call(script, (self._key(topic),), (self._group, self._options.consumer, *arguments))

    async def _attempt(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts; a reply is None where the group was gone, or a node is away.

        Groups that were gone are created.
        """
        with bus_errors("run a script"):
            replies = await self._servers.attempt(calls)
        gone = [reply for reply in replies if isinstance(reply, ResponseError)]
        for reply in gone:
            try:
                with bus_errors("run a script"):
                    raise reply
            except GroupMissingError:
                self._grouped.clear()
        if gone:
            await self._create_groups()
        return [None if isinstance(reply, Exception) else reply for reply in replies]


def _by_source(deliveries: Sequence[Delivery]) -> Mapping[str, list[str]]:
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        tokens[delivery.source].append(delivery.token)
    return tokens
