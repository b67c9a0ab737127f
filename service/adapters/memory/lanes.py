"""Entries of a stream that wait for workers, sorted so that each owner gets its turn."""

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from service.adapters.bus_records import owner_of
from service.aio import LARGE_TEXT
from service.ports.bus import lane_of

#: New entries of one owner above which it gets a lane of its own; a large one counts as several.
SHARE: Final = 8


class Lanes:
    """Queues of entries: one for all owners with few, and some for the others.

    Such a lane lasts until it is empty, so that an owner's entries stay in their order; only those
    that waited before its lane was made may be overtaken. Owners share lanes as they do in Redis.
    """

    def __init__(self) -> None:
        self._light: deque[str] = deque()
        #: By name; the first one has its turn.
        self._heavy: dict[str, deque[str]] = {}
        self._calls = 0

    def __len__(self) -> int:
        return len(self._light) + sum(map(len, self._heavy.values()))

    @property
    def waiting(self) -> list[str]:
        """Return all entries, in no order."""
        return [*self._light, *(entry for lane in self._heavy.values() for entry in lane)]

    def add(self, payloads: Mapping[str, bytes]) -> None:
        """Add new entries, given by their ids, in the order of the stream."""
        owners = {entry: owner_of(payload) or "" for entry, payload in payloads.items()}
        costs = Counter[str]()
        for entry, owner in owners.items():
            costs[owner] += 1 + len(payloads[entry]) // LARGE_TEXT
        lanes = {owner: lane_of(owner) for owner in costs}
        heavy = {*self._heavy, *(lanes[owner] for owner in costs if costs[owner] > SHARE)}
        for entry, owner in owners.items():
            if lanes[owner] in heavy:
                self._heavy.setdefault(lanes[owner], deque()).append(entry)
            else:
                self._light.append(entry)

    def take(self, slots: int, *, heavy: int) -> dict[str, int | None]:
        """Remove at most ``slots`` entries, and return them in their order.

        Those of owners with few are first, with None; then at most ``heavy`` of the others, each
        with the number of entries that remain in its lane. Every eighth time it is the
        other way round, as either could fill all slots.
        """
        self._calls += 1
        many_first = self._calls % 8 == 0
        taken = self._take_heavy(min(slots, heavy)) if many_first else {}
        count = min(slots - len(taken), len(self._light))
        taken |= {self._light.popleft(): None for _ in range(count)}
        return taken if many_first else taken | self._take_heavy(min(slots - count, heavy))

    def _take_heavy(self, count: int) -> dict[str, int | None]:
        taken: dict[str, int | None] = {}
        while self._heavy and len(taken) < count:
            name = next(iter(self._heavy))
            lane = self._heavy.pop(name)
            entry = lane.popleft()
            taken[entry] = len(lane)
            if lane:
                self._heavy[name] = lane
        return taken
