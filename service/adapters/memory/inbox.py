"""Streams of a hub in this process, read by a consumer group."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields
from service.adapters.memory.hub import EntryId, Group, Lease, MemoryHub, Stream, entry_of, token_of
from service.ports.stream import Delivery, Depth
from service.wire.protocol import Topics

log = structlog.get_logger()

EPOCH = datetime.fromtimestamp(0, UTC)


class MemoryInbox:
    """An `Inbox` over one or more streams of a hub, which share the consumer group."""

    def __init__(
        self, hub: MemoryHub, topics: Sequence[str], group: str, options: BusOptions
    ) -> None:
        self._hub = hub
        self._topics = tuple(topics)
        self._group = group
        self._options = options

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        # Lets others run, even where there is always something to read.
        await asyncio.sleep(0)
        found = self._read(slots)
        if found or wait <= 0 or slots < 1:
            return found
        try:
            async with asyncio.timeout(wait):
                while not found:
                    await self._hub.added()
                    found = self._read(slots)
        except TimeoutError:
            return []
        return found

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has run out; raises their attempt."""
        now = self._hub.clock()
        claimed: list[Delivery] = []
        for topic, stream, group in self._each():
            over = now - self._options.lease_seconds
            due = [entry for entry, lease in group.pending.items() if lease.since <= over]
            for entry in sorted(due)[: max(0, slots - len(claimed))]:
                lease = Lease(self._options.consumer, now, group.pending[entry].attempts + 1)
                group.pending[entry] = lease
                claimed.append(_delivery(topic, stream, entry, lease.attempts))
        return claimed

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        self._set_idle(deliveries, 0.0)

    async def forgive(self, deliveries: Sequence[Delivery]) -> None:
        """Renew those that this worker still holds, and count this attempt as their first."""
        self._set_idle(deliveries, 0.0)
        for delivery in deliveries:
            lease = self.group_of(delivery).pending.get(entry_of(delivery.token))
            if lease and lease.consumer == self._options.consumer:
                lease.attempts = 1

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds run out now."""
        self._set_idle(deliveries, self._options.lease_seconds)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that need no answer."""
        for delivery in deliveries:
            self.group_of(delivery).pending.pop(entry_of(delivery.token), None)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead letter and settle it, in one step, while it is ours."""
        group, entry = self.group_of(delivery), entry_of(delivery.token)
        if group.holder(entry) == self._options.consumer:
            self.bury(delivery, reason)
            del group.pending[entry]

    def bury(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead letter."""
        self._hub.add(
            self._options.prefix + Topics.CONTEXT_BUILD_DEAD,
            dead_letter_fields(delivery, reason, self._hub.now()),
            keep=self._options.dead_max_length,
        )

    async def trim(self) -> None:
        """Delete entries that every group has read and settled, and no others."""
        for topic in self._topics:
            self._hub.streams[self._options.prefix + topic].trim()

    async def depth(self) -> Depth:
        """Tell how much waits for the group, and how much is in work."""
        groups = [(stream, group) for _, stream, group in self._each()]
        written = [entry[0] / 1000 for _, group in groups for entry in group.pending]
        now = self._hub.now().timestamp()
        return Depth(
            lag=sum(
                len(stream.ids) - bisect_right(stream.ids, group.last) for stream, group in groups
            ),
            pending=len(written),
            oldest_pending_seconds=max(0.0, now - min(written, default=now)),
        )

    async def leave(self) -> None:
        """Take this worker out of the group: here, a group knows only those who hold entries."""

    def group_of(self, delivery: Delivery) -> Group:
        """Return the group that a delivery came through."""
        return self._hub.streams[self._options.prefix + delivery.source].group(self._group)

    def _each(self) -> Iterator[tuple[str, Stream, Group]]:
        for topic in self._topics:
            stream = self._hub.streams[self._options.prefix + topic]
            yield topic, stream, stream.group(self._group)

    def _read(self, slots: int) -> list[Delivery]:
        found: list[Delivery] = []
        for topic, stream, group in self._each():
            for entry in stream.after(group.last, max(0, slots - len(found))):
                group.last = entry
                group.pending[entry] = Lease(self._options.consumer, self._hub.clock())
                found.append(_delivery(topic, stream, entry, 1))
        return found

    def _set_idle(self, deliveries: Sequence[Delivery], idle: float) -> None:
        for delivery in deliveries:
            lease = self.group_of(delivery).pending.get(entry_of(delivery.token))
            if lease and lease.consumer == self._options.consumer:
                lease.since = self._hub.clock() - idle


def _delivery(topic: str, stream: Stream, entry: EntryId, attempt: int) -> Delivery:
    return Delivery(
        source=topic,
        token=token_of(entry),
        payload=stream.entries[entry].get("data", b""),
        received_at=_written_at(*entry),
        attempt=attempt,
    )


def _written_at(milliseconds: int, number: int) -> datetime:
    """Return an entry's time: those of one millisecond in their order, a microsecond apart."""
    return EPOCH + timedelta(milliseconds=milliseconds, microseconds=min(number, 999))
