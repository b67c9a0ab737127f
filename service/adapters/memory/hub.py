"""What a bus server holds, within this process: streams, channels, stored answers and replies."""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

from service.adapters.arrivals import Arrivals

#: Milliseconds since the epoch, and a number within the millisecond.
EntryId = tuple[int, int]
Fields = Mapping[str, bytes]
#: Returns seconds that never decrease.
Clock = Callable[[], float]
Value = TypeVar("Value")

#: The build reports kept, a few kilobytes each without texts.
MAX_REPORTS: Final = 1000


class MemoryHub:
    """The state that the buses of one process share, as they would share a server.

    It belongs to one event loop. ``clock`` measures leases and lifetimes, and drives `now`.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.streams: defaultdict[str, Stream] = defaultdict(Stream)
        #: Stored answers, packed.
        self.results: Expiring[bytes] = Expiring(clock)
        #: The consumers that have received a payload on the channel.
        self.heard: Expiring[set[str]] = Expiring(clock)
        self.replies: Expiring[Replies] = Expiring(clock)
        self.reports = MemoryReports(clock)
        self._subscribers: defaultdict[str, list[Arrivals]] = defaultdict(list)
        self._added = asyncio.Event()
        self._started = (datetime.now(UTC), clock())

    def now(self) -> datetime:
        """Return the time of day."""
        started, reading = self._started
        return started + timedelta(seconds=self.clock() - reading)

    def add(self, stream: str, fields: Fields, *, keep: int | None = None) -> EntryId:
        """Append to a stream, which keeps at most ``keep`` entries; wakes waiting readers."""
        entries = self.streams[stream]
        entry = entries.add(int(self.now().timestamp() * 1000), fields)
        if keep is not None:
            entries.drop(max(0, len(entries.ids) - keep))
        self._added.set()
        self._added = asyncio.Event()
        return entry

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
    def subscribed(self, channel: str, arrivals: Arrivals) -> Iterator[None]:
        """Subscribe to a channel while the context lasts."""
        self._subscribers[channel].append(arrivals)
        try:
            yield
        finally:
            self._subscribers[channel].remove(arrivals)
            if not self._subscribers[channel]:
                del self._subscribers[channel]

    def read_replies(self, name: str) -> list[bytes]:
        """Return the replies in a list or a stream, oldest first."""
        replies = self.replies.get(name)
        return list(replies.payloads) if replies else []


@dataclass(slots=True)
class Lease:
    """An entry that a consumer has held since a moment on the monotonic clock."""

    consumer: str
    since: float
    attempts: int = 1


@dataclass(slots=True)
class Group:
    """How far a consumer group has read, and which of these entries it has not acked."""

    last: EntryId = (0, 0)
    pending: dict[EntryId, Lease] = field(default_factory=dict)

    def holder(self, entry: EntryId) -> str | None:
        """Return the consumer that holds an entry, or None."""
        lease = self.pending.get(entry)
        return lease.consumer if lease else None

    @property
    def oldest_needed(self) -> EntryId:
        """Return the first id that this group has not acked or not read."""
        return min(self.pending, default=(self.last[0], self.last[1] + 1))


@dataclass(slots=True)
class Stream:
    """Entries in the order of their ids, and the groups that read them."""

    ids: list[EntryId] = field(default_factory=list)
    entries: dict[EntryId, Fields] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    last: EntryId = (0, 0)

    def add(self, at_ms: int, fields: Fields) -> EntryId:
        """Append an entry; ids increase even if the clock does not."""
        self.last = max((at_ms, 0), (self.last[0], self.last[1] + 1))
        self.ids.append(self.last)
        self.entries[self.last] = fields
        return self.last

    def group(self, name: str) -> Group:
        """Return a group; a new one starts at the first entry."""
        return self.groups.setdefault(name, Group())

    def after(self, last: EntryId, count: int) -> list[EntryId]:
        """Return at most ``count`` ids after one."""
        start = bisect_right(self.ids, last)
        return self.ids[start : start + count]

    def trim(self) -> None:
        """Delete the entries that every group has read and acked, if there are groups."""
        if self.groups:
            needed = min(group.oldest_needed for group in self.groups.values())
            self.drop(bisect_left(self.ids, needed))

    def delete(self, entry: EntryId) -> bool:
        """Delete one entry; returns whether it existed."""
        if self.entries.pop(entry, None) is None:
            return False
        self.ids.remove(entry)
        return True

    def drop(self, count: int) -> None:
        """Delete the oldest entries."""
        for entry in self.ids[:count]:
            del self.entries[entry]
        del self.ids[:count]


def token_of(entry: EntryId) -> str:
    """Format an id as Redis does."""
    return f"{entry[0]}-{entry[1]}"


def entry_of(token: str) -> EntryId:
    """Parse an id."""
    milliseconds, _, number = token.partition("-")
    return int(milliseconds), int(number)


class Expiring(Generic[Value]):
    """Values that expire, or are removed when ``maximum`` newer ones have been added."""

    def __init__(self, clock: Clock, maximum: int | None = None) -> None:
        self._clock = clock
        self._maximum = maximum
        self._values: dict[Hashable, tuple[Value, float]] = {}

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, or None."""
        value, until = self._values.get(key, (None, 0.0))
        return value if until > self._clock() else None

    def items(self) -> list[tuple[Hashable, Value]]:
        """Return the keys and values that have not expired."""
        now = self._clock()
        return [(key, value) for key, (value, until) in self._values.items() if until > now]

    def drop(self, key: Hashable) -> None:
        """Remove a value, if it exists."""
        self._values.pop(key, None)

    def put(self, key: Hashable, value: Value, seconds: float) -> None:
        """Keep a value for some seconds from now."""
        now = self._clock()
        self._values.pop(key, None)
        self._values[key] = (value, now + seconds)
        # values of one kind have the same time to live, so the expired ones come first
        while (oldest := next(iter(self._values))) != key and self._values[oldest][1] <= now:
            del self._values[oldest]
        if self._maximum is not None and len(self._values) > self._maximum:
            del self._values[oldest]


@dataclass(slots=True)
class Replies:
    """The replies under one name, all of one kind."""

    kind: str
    payloads: list[bytes] = field(default_factory=list)


class MemoryReports:
    """The `ReportStore` in this process, for the newest builds."""

    def __init__(self, clock: Clock = time.monotonic, maximum: int = MAX_REPORTS) -> None:
        #: By build id.
        self.kept: Expiring[bytes] = Expiring(clock, maximum)

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Store reports by build id."""
        for build_id, report in reports.items():
            self.kept.put(build_id, report, ttl_seconds)

    async def get(self, build_id: str) -> bytes | None:
        """Return the report of a build, or None."""
        return self.kept.get(build_id)

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a report."""
        return frozenset(name for name in build_ids if self.kept.get(name) is not None)
