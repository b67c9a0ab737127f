"""Streams of a hub in this process, read by a consumer group."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields
from service.adapters.memory.hub import EntryId, Group, Lease, MemoryHub, Stream, entry_of, token_of
from service.ports.stream import Delivery, Depth
from service.wire.protocol import Topics

EPOCH: Final = datetime.fromtimestamp(0, UTC)


class MemoryInbox:
    """An `Inbox` over one or more streams of a hub with the same consumer group."""

    def __init__(
        self, hub: MemoryHub, topics: Sequence[str], group: str, options: BusOptions
    ) -> None:
        self._hub = hub
        self._topics = tuple(topics)
        self._group = group
        self._options = options

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        # lets other tasks run, even if there is always something to read
        await asyncio.sleep(0)
        deliveries = self._read(slots)
        if deliveries or wait <= 0 or slots < 1:
            return deliveries
        try:
            async with asyncio.timeout(wait):
                while not deliveries:
                    await self._hub.added()
                    deliveries = self._read(slots)
        except TimeoutError:
            return []
        return deliveries

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has expired, and count an attempt."""
        now = self._hub.clock()
        claimed: list[Delivery] = []
        for topic, stream, group in self._streams():
            oldest_valid = now - self._options.lease_seconds
            due = [entry for entry, lease in group.pending.items() if lease.since <= oldest_valid]
            for entry in sorted(due)[: max(0, slots - len(claimed))]:
                lease = Lease(self._options.consumer, now, group.pending[entry].attempts + 1)
                group.pending[entry] = lease
                claimed.append(_delivery(topic, stream, entry, lease.attempts))
        return claimed

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        self._set_idle(deliveries, 0.0)

    async def reset_attempts(self, deliveries: Sequence[Delivery]) -> None:
        """Renew those that this worker still holds, and reset their attempts to 1."""
        self._set_idle(deliveries, 0.0)
        for lease in self._held(deliveries):
            lease.attempts = 1

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds expire now."""
        self._set_idle(deliveries, self._options.lease_seconds)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Ack deliveries that need no answer."""
        for delivery in deliveries:
            self.group_of(delivery).pending.pop(entry_of(delivery.token), None)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead-letter stream and ack it, if this worker still holds it."""
        group, entry = self.group_of(delivery), entry_of(delivery.token)
        if group.holder(entry) == self._options.consumer:
            self.add_dead_letter(delivery, reason)
            del group.pending[entry]

    def add_dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead-letter stream."""
        self._hub.add(
            self._options.prefix + Topics.CONTEXT_BUILD_DEAD,
            dead_letter_fields(delivery, reason, self._hub.now()),
            keep=self._options.dead_max_length,
        )

    async def trim(self) -> None:
        """Delete the entries that every group has read and acked."""
        for topic in self._topics:
            self._hub.streams[self._options.prefix + topic].trim()

    async def depth(self) -> Depth:
        """Count the entries that wait for the group, and those that are pending in it."""
        groups = [(stream, group) for _, stream, group in self._streams()]
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
        """Do nothing: a group of a hub knows only the consumers that hold entries."""

    def group_of(self, delivery: Delivery) -> Group:
        """Return the group that a delivery came through."""
        return self._hub.streams[self._options.prefix + delivery.source].group(self._group)

    def _streams(self) -> Iterator[tuple[str, Stream, Group]]:
        for topic in self._topics:
            stream = self._hub.streams[self._options.prefix + topic]
            yield topic, stream, stream.group(self._group)

    def _read(self, slots: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for topic, stream, group in self._streams():
            for entry in stream.after(group.last, max(0, slots - len(deliveries))):
                group.last = entry
                group.pending[entry] = Lease(self._options.consumer, self._hub.clock())
                deliveries.append(_delivery(topic, stream, entry, 1))
        return deliveries

    def _held(self, deliveries: Sequence[Delivery]) -> Iterator[Lease]:
        """Yield the leases of those that this worker still holds."""
        for delivery in deliveries:
            lease = self.group_of(delivery).pending.get(entry_of(delivery.token))
            if lease and lease.consumer == self._options.consumer:
                yield lease

    def _set_idle(self, deliveries: Sequence[Delivery], seconds: float) -> None:
        for lease in self._held(deliveries):
            lease.since = self._hub.clock() - seconds


def _delivery(topic: str, stream: Stream, entry: EntryId, attempt: int) -> Delivery:
    milliseconds, number = entry
    # entries of one millisecond keep their order: they are a microsecond apart
    after = timedelta(milliseconds=milliseconds, microseconds=min(number, 999))
    return Delivery(
        source=topic,
        token=token_of(entry),
        payload=stream.entries[entry].get("data", b""),
        received_at=EPOCH + after,
        attempt=attempt,
    )
