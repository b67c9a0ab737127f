"""Streams of Redis read by a consumer group."""

from asyncio import timeout
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import structlog
from redis.exceptions import ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.dead_letters import dead_letter_fields
from service.adapters.redis.client import Clients, GroupMissingError, bus_errors, entries
from service.adapters.redis.depth import depth
from service.adapters.redis.scripts import (
    CLAIM,
    DEAD_LETTER,
    FORGIVE,
    LEAVE,
    SET_IDLE,
    TRIM,
    Argument,
    Call,
    Script,
    flat,
    run,
)
from service.inbox import Delivery, Depth
from service.wire import Topics

log = structlog.get_logger()


class RedisInbox:
    """An `Inbox` over one or more streams, which share the consumer group.

    The group is created with the first read, from the first entry on, and again where it is lost.
    """

    def __init__(
        self, clients: Clients, topics: Sequence[str], group: str, options: BusOptions
    ) -> None:
        self._clients = clients
        self._topics = tuple(topics)
        self._group = group
        self._options = options
        self._lease_ms = int(options.lease_seconds * 1000)
        self._ready = False
        self._turn = 0

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        if slots < 1:
            return []
        if not self._ready:
            await self._create_groups()
        topics = self._next_topics(slots)
        try:
            with bus_errors("receive"):
                async with timeout(wait + self._options.socket_timeout):
                    reply = await self._clients.blocking.xreadgroup(
                        self._group,
                        self._options.consumer,
                        dict.fromkeys(map(self._key, topics), ">"),
                        count=slots // len(topics),  # holds for each stream
                        block=ceil(wait * 1000) or None,  # 0 would wait for ever
                    )
        except GroupMissingError:
            await self._create_groups()
            return []
        return [
            self._delivery(stream.removeprefix(self._options.prefix), entry, fields, 1)
            for stream, found in entries(reply)
            for entry, fields in found
        ]

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has run out; raises their attempt."""
        claimed: list[Delivery] = []
        for topic in self._topics:
            if len(claimed) >= slots:
                break
            arguments = (self._lease_ms, slots - len(claimed))
            found, lost = await self._ask(CLAIM, topic, *arguments) or ((), ())
            if lost:
                log.error("bus.entries_lost", stream=self._key(topic), count=len(lost))
            for entry, parts, attempt in found:
                fields = dict(zip(parts[::2], parts[1::2], strict=True))
                claimed.append(self._delivery(topic, entry.decode(), fields, attempt))
        return claimed

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        await self._set_idle(deliveries, 0)

    async def forgive(self, deliveries: Sequence[Delivery]) -> None:
        """Renew those that this worker still holds, and count this attempt as their first."""
        for source, tokens in _by_source(deliveries).items():
            await self._ask(FORGIVE, source, *tokens)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds run out now."""
        await self._set_idle(deliveries, self._lease_ms)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that need no answer."""
        for source, tokens in _by_source(deliveries).items():
            with bus_errors("ack"):
                await self._clients.commands.xack(self._key(source), self._group, *tokens)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead letter and settle it, in one step, while it is ours."""
        keys = (self._key(delivery.source), self._key(Topics.CONTEXT_BUILD_DEAD))
        arguments = (
            delivery.token,
            self._options.dead_max_length,
            *flat(dead_letter_fields(delivery, reason, self._clients.clock.now())),
        )
        await self._run(DEAD_LETTER, keys, *arguments)

    async def trim(self) -> None:
        """Delete entries that every group has read and settled, and no others."""
        with bus_errors("trim"):
            calls = [Call(TRIM, (self._key(topic),), ()) for topic in self._topics]
            await run(self._clients.commands, calls)

    async def depth(self) -> Depth:
        """Tell how much waits for the group, and how much is in work."""
        return await depth(self._clients, [*map(self._key, self._topics)], self._group)

    async def leave(self) -> None:
        """Take this worker out of the group, unless it still holds entries."""
        for topic in self._topics:
            await self._ask(LEAVE, topic)

    def _key(self, topic: str) -> str:
        return self._options.prefix + topic

    def _next_topics(self, slots: int) -> Sequence[str]:
        """Return as many streams as there are slots, each in its turn."""
        if slots >= len(self._topics):
            return self._topics
        start, self._turn = self._turn, (self._turn + 1) % len(self._topics)
        return (self._topics[start:] + self._topics[:start])[:slots]

    def _delivery(
        self, source: str, entry: str, fields: Mapping[bytes, bytes], attempt: int
    ) -> Delivery:
        return Delivery(
            source=source,
            token=entry,
            payload=fields.get(b"data", b""),
            received_at=self._clients.clock.written_at(entry),
            attempt=attempt,
        )

    async def _create_groups(self) -> None:
        for topic in self._topics:
            with bus_errors("create the group"):
                try:
                    await self._clients.commands.xgroup_create(
                        self._key(topic), self._group, id="0", mkstream=True
                    )
                    log.info("bus.group_created", stream=self._key(topic), group=self._group)
                except ResponseError as error:
                    if "BUSYGROUP" not in str(error):
                        raise
        self._ready = True

    async def _set_idle(self, deliveries: Sequence[Delivery], idle_ms: int) -> None:
        for source, tokens in _by_source(deliveries).items():
            await self._ask(SET_IDLE, source, idle_ms, *tokens)

    async def _ask(self, script: Script, topic: str, *arguments: Argument) -> Any:  # noqa: ANN401 - Lua's reply
        return await self._run(script, (self._key(topic),), *arguments)

    async def _run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Any:  # noqa: ANN401 - Lua's reply
        """Run a script for this consumer; None where the group was gone and had to be created."""
        call = Call(script, keys, (self._group, self._options.consumer, *arguments))
        try:
            with bus_errors("run a script"):
                (reply,) = await run(self._clients.commands, [call])
        except GroupMissingError:
            await self._create_groups()
            return None
        return reply


def _by_source(deliveries: Sequence[Delivery]) -> Mapping[str, list[str]]:
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        tokens[delivery.source].append(delivery.token)
    return tokens
