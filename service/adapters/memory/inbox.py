"""Streams of a hub in this process, read by a consumer group."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from service.adapters.bus_options import BusOptions
from service.adapters.bus_records import dead_letter_fields, written_ids
from service.adapters.memory.hub import ConsumerGroup, Lease, MemoryHub, Stream, written_at
from service.ports.bus import RECALL_FIELD, Delivery, Depth
from service.wire.protocol import Topics

#: Most entries that are sorted at once, as their owners are read.
READ_ENTRIES: Final = 500


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
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not deliveries:
                    await self._hub.added()
                    deliveries = self._read(slots)
        return deliveries

    @property
    def crowded(self) -> bool:
        """Return whether entries wait for `receive_fairly`."""
        return any(group.lanes for _, _, group in self._streams())

    async def receive_fairly(self, slots: int, *, heavy: int) -> list[Delivery]:
        """Return at most ``slots`` entries, of each owner in turn."""
        await asyncio.sleep(0)
        deliveries: list[Delivery] = []
        for topic, stream, group in self._streams():
            count = min(READ_ENTRIES, len(group.unread))
            unread = [group.unread.popleft() for _ in range(count)]
            group.lanes.add({each: stream.entries[each].get("data", b"") for each in unread})
            taken = group.lanes.take(slots - len(deliveries), heavy=heavy)
            workers = {self._options.consumer, *(each.consumer for each in group.pending.values())}
            deliveries += (
                replace(delivery, behind=None if behind is None else behind // len(workers))
                for delivery, behind in zip(
                    self._deliver(topic, stream, group, taken), taken.values(), strict=True
                )
            )
        return deliveries

    async def claim(self, slots: int, *, counted: bool = True) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has expired, and count an attempt."""
        now = self._hub.clock()
        claimed: list[Delivery] = []
        for topic, stream, group in self._streams():
            for entry_id, lease in group.pending.items():
                if len(claimed) < slots and lease.since <= now - self._options.lease_seconds:
                    lease.consumer, lease.since = self._options.consumer, now
                    claimed.append(_delivery(topic, stream, entry_id, lease.attempts + 1))
                    lease.attempts += counted
        return claimed

    async def find_earlier(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the unsettled entries that precede the last of these, without these."""
        given = [(delivery.source, delivery.token) for delivery in deliveries]
        last = {delivery.source: delivery for delivery in deliveries}
        return [
            _delivery(topic, stream, entry_id, lease.attempts)
            for topic, stream, group in self._streams()
            for entry_id, lease in group.pending.items()
            if (topic, entry_id) not in given and topic in last
            if _delivery(topic, stream, entry_id, 1).order < last[topic].order
        ]

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        for lease in self._held(deliveries):
            lease.since = self._hub.clock()

    async def set_attempts(self, deliveries: Sequence[Delivery], attempts: int) -> None:
        """Renew those that this worker still holds, and set their attempts."""
        for lease in self._held(deliveries):
            lease.since, lease.attempts = self._hub.clock(), attempts

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds expire now."""
        for lease in self._held(deliveries):
            lease.since = self._hub.clock() - self._options.lease_seconds

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Ack deliveries that need no answer."""
        for delivery in deliveries:
            self.group_of(delivery).pending.pop(delivery.token, None)

    async def dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Copy the entry to the dead-letter stream and ack it, if this worker still holds it."""
        group = self.group_of(delivery)
        if group.holder(delivery.token) == self._options.consumer:
            self.add_dead_letter(delivery, reason)
            del group.pending[delivery.token]
        return True

    def add_dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead-letter stream, which drops its oldest if it is full."""
        name = self._options.prefix + Topics.CONTEXT_BUILD_DEAD
        self._hub.add(name, dead_letter_fields(delivery, reason, self._hub.now()))
        entries = self._hub.streams[name].entries
        if len(entries) > self._options.dead_max_length:
            del entries[next(iter(entries))]

    async def trim(self) -> None:
        """Delete the entries that every group has read and acked."""
        for _, stream, _ in self._streams():
            stream.trim()

    async def depth(self) -> Depth:
        """Count the entries that wait for the group, and those that are pending in it."""
        groups = [group for _, _, group in self._streams()]
        pending = [entry_id for group in groups for entry_id in group.pending]
        now = self._hub.now()
        oldest = min(map(written_at, pending), default=now)
        return Depth(
            lag=sum(len(group.unread) + len(group.lanes) for group in groups),
            pending=len(pending),
            oldest_pending_seconds=max(0.0, (now - oldest).total_seconds()),
        )

    async def leave(self) -> None:
        """Do nothing: a group of a hub knows only the consumers that hold entries."""

    def group_of(self, delivery: Delivery) -> ConsumerGroup:
        """Return the group that a delivery came through."""
        return self._hub.streams[self._options.prefix + delivery.source].group(self._group)

    def _streams(self) -> Iterator[tuple[str, Stream, ConsumerGroup]]:
        for topic in self._topics:
            stream = self._hub.streams[self._options.prefix + topic]
            yield topic, stream, stream.group(self._group)

    def _read(self, slots: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for topic, stream, group in self._streams():
            count = min(slots - len(deliveries), len(group.unread))
            unread = [group.unread.popleft() for _ in range(count)]
            deliveries += self._deliver(topic, stream, group, unread)
        return deliveries

    def _deliver(
        self, topic: str, stream: Stream, group: ConsumerGroup, entry_ids: Iterable[str]
    ) -> Iterator[Delivery]:
        for entry_id in entry_ids:
            group.pending[entry_id] = Lease(self._options.consumer, self._hub.clock())
            yield _delivery(topic, stream, entry_id, 1)

    def _held(self, deliveries: Sequence[Delivery]) -> Iterator[Lease]:
        """Yield the leases of those that this worker still holds."""
        for delivery in deliveries:
            lease = self.group_of(delivery).pending.get(delivery.token)
            if lease and lease.consumer == self._options.consumer:
                yield lease


def _delivery(topic: str, stream: Stream, entry_id: str, attempt: int) -> Delivery:
    fields = stream.entries[entry_id]
    recall = fields.get(RECALL_FIELD)
    ids = [entry_id] if recall is None else written_ids(entry_id, recall)
    return Delivery(
        source=topic,
        token=entry_id,
        payload=fields.get("data", b""),
        received_at=min(map(written_at, ids)),
        attempt=attempt,
        recall=recall is not None,
    )
