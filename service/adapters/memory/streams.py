"""Streams with consumer groups, as plain values."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Milliseconds since the epoch, and a number within the millisecond.
EntryId = tuple[int, int]
Fields = Mapping[str, bytes]


@dataclass(slots=True)
class Lease:
    """An entry in the hands of a consumer, since a moment on the monotonic clock."""

    consumer: str
    since: float
    attempts: int = 1


@dataclass(slots=True)
class Group:
    """How far a group has read, and what of that it has not settled."""

    last: EntryId = (0, 0)
    pending: dict[EntryId, Lease] = field(default_factory=dict)

    def holder(self, entry: EntryId) -> str | None:
        """Return the consumer that has an entry in its hands, if one has."""
        lease = self.pending.get(entry)
        return lease.consumer if lease else None

    @property
    def oldest_needed(self) -> EntryId:
        """Return the first id that this group has not settled or not read."""
        return min(self.pending, default=(self.last[0], self.last[1] + 1))


@dataclass(slots=True)
class Stream:
    """Entries in the order of their ids, with the groups that read them."""

    ids: list[EntryId] = field(default_factory=list)
    entries: dict[EntryId, Fields] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    last: EntryId = (0, 0)

    def add(self, at_ms: int, fields: Fields) -> EntryId:
        """Append an entry; ids grow even where the clock does not."""
        self.last = max((at_ms, 0), (self.last[0], self.last[1] + 1))
        self.ids.append(self.last)
        self.entries[self.last] = fields
        return self.last

    def group(self, name: str) -> Group:
        """Return a group, which begins with the first entry there is."""
        return self.groups.setdefault(name, Group())

    def after(self, last: EntryId, most: int) -> list[EntryId]:
        """Return the next ids past one."""
        start = bisect_right(self.ids, last)
        return self.ids[start : start + most]

    def trim(self) -> None:
        """Delete what every group has read and settled; nothing where there is no group."""
        if self.groups:
            needed = min(group.oldest_needed for group in self.groups.values())
            self.drop(bisect_left(self.ids, needed))

    def delete(self, entry: EntryId) -> bool:
        """Delete one entry; returns whether it was there."""
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
    """Write an id as Redis does."""
    return f"{entry[0]}-{entry[1]}"


def entry_of(token: str) -> EntryId:
    """Read an id."""
    milliseconds, _, number = token.partition("-")
    return int(milliseconds), int(number)
