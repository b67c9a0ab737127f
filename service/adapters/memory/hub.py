"""The state of a bus server, within this process: streams, channels, stored answers and replies."""

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, TypeVar

from cachetools import TLRUCache

from service.adapters.arrivals import Arrivals
from service.adapters.memory.lanes import Lanes
from service.ports.bus import Identity

Fields = Mapping[str, bytes]
#: Returns seconds that never decrease.
Clock = Callable[[], float]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: The build reports kept, a few kilobytes each without texts.
MAX_REPORTS: Final = 1000
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class MemoryHub:
    """The state that the buses of one process share, as they would share a server.

    It belongs to one event loop. ``clock`` measures leases and lifetimes, and drives `now`.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.streams: defaultdict[str, Stream] = defaultdict(Stream)
        #: Stored answers, packed, by the bus's prefix.
        self.results: Expiring[tuple[str, Identity], bytes] = Expiring(clock)
        #: The consumers that have received a payload on a channel, by the bus's prefix.
        self.heard: Expiring[tuple[object, ...], set[str]] = Expiring(clock)
        self.replies: Expiring[str, Replies] = Expiring(clock)
        self.reports = MemoryReports(clock)
        self._subscribers: defaultdict[str, list[Arrivals]] = defaultdict(list)
        self._added = asyncio.Event()
        self._started = (datetime.now(UTC), clock())

    def now(self) -> datetime:
        """Return the time of day."""
        started, reading = self._started
        return started + timedelta(seconds=self.clock() - reading)

    def add(self, stream: str, fields: Fields) -> str:
        """Append an entry to a stream, and wake waiting readers; returns its id."""
        entry_id = self.streams[stream].add(int(self.now().timestamp() * 1000), fields)
        self._added.set()
        self._added = asyncio.Event()
        return entry_id

    async def added(self) -> None:
        """Wait until an entry is appended to any stream."""
        await self._added.wait()

    def publish(self, channel: str, payload: bytes) -> int:
        """Send to the subscribers of a channel; returns their number."""
        subscribers = self._subscribers.get(channel, ())
        for arrivals in subscribers:
            arrivals.put(payload)
        return len(subscribers)

    @contextmanager
    def subscribed(self, channel: str) -> Iterator[Arrivals]:
        """Subscribe to a channel while the context lasts; yields its messages."""
        arrivals = Arrivals(channel)
        self._subscribers[channel].append(arrivals)
        try:
            yield arrivals
        finally:
            self._subscribers[channel].remove(arrivals)
            if not self._subscribers[channel]:
                del self._subscribers[channel]


@dataclass(slots=True)
class Lease:
    """An entry that a consumer has held since a moment on the monotonic clock."""

    consumer: str
    since: float
    attempts: int = 1


@dataclass(slots=True)
class ConsumerGroup:
    """The entries that a consumer group has not read, and those that it has not acked."""

    unread: deque[str]
    #: Entries that were read, and wait for a worker.
    lanes: Lanes = field(default_factory=Lanes)
    #: By the entries' ids, in their order.
    pending: dict[str, Lease] = field(default_factory=dict)

    def holder(self, entry_id: str) -> str | None:
        """Return the consumer that holds an entry, or None."""
        lease = self.pending.get(entry_id)
        return lease.consumer if lease else None


@dataclass(slots=True)
class Stream:
    """Entries by their ids, in the order of these, and the groups that read them."""

    entries: dict[str, Fields] = field(default_factory=dict)
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    #: The parts of the newest id: milliseconds since the epoch, and a number within them.
    last: tuple[int, int] = (0, 0)

    def add(self, at_ms: int, fields: Fields) -> str:
        """Append an entry; ids are those of Redis, and increase even if the clock does not."""
        self.last = max((at_ms, 0), (self.last[0], self.last[1] + 1))
        entry_id = f"{self.last[0]}-{self.last[1]}"
        self.entries[entry_id] = fields
        for group in self.groups.values():
            group.unread.append(entry_id)
        return entry_id

    def group(self, name: str) -> ConsumerGroup:
        """Return a group; a new one starts at the first entry."""
        if name not in self.groups:
            self.groups[name] = ConsumerGroup(deque(self.entries))
        return self.groups[name]

    def trim(self) -> None:
        """Delete the oldest entries, which every group has read and acked, if there are groups."""
        needed: set[str] = set()
        for group in self.groups.values():
            needed.update(group.unread, group.pending, group.lanes.waiting)
        settled = list(takewhile(lambda entry_id: entry_id not in needed, self.entries))
        for entry_id in settled if self.groups else ():
            del self.entries[entry_id]


def written_at(entry_id: str) -> datetime:
    """Return when an entry was written; those of one millisecond are a microsecond apart."""
    milliseconds, _, number = entry_id.partition("-")
    return _EPOCH + timedelta(milliseconds=int(milliseconds), microseconds=min(int(number), 999))


class Expiring(TLRUCache[Key, Value]):
    """Values that expire; beyond ``maximum``, the least recently used is removed."""

    def __init__(self, clock: Clock, maximum: float = math.inf) -> None:
        self._seconds = 0.0
        super().__init__(maximum, lambda _key, _value, now: now + self._seconds, timer=clock)

    def keep(self, key: Key, value: Value, seconds: float) -> None:
        """Keep a value for some seconds from now."""
        self._seconds = seconds
        self[key] = value


@dataclass(slots=True)
class Replies:
    """The replies under one name, all of one kind, oldest first."""

    kind: str
    payloads: list[bytes] = field(default_factory=list)


class MemoryReports:
    """The `ReportStore` in this process, for the newest builds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        #: By build id.
        self.kept: Expiring[str, bytes] = Expiring(clock, MAX_REPORTS)

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Store reports by build id."""
        for build_id, report in reports.items():
            self.kept.keep(build_id, report, ttl_seconds)

    async def get(self, build_id: str) -> bytes | None:
        """Return the report of a build, or None."""
        return self.kept.get(build_id)

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a report."""
        return frozenset(name for name in build_ids if name in self.kept)
