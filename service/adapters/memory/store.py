"""History and profiles in this process's memory; gone when it ends."""

import json
from bisect import insort
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from formatters.model import Row
from formatters.rows import well_formed
from service.adapters.owner_locks import OwnerLocks
from service.adapters.rows import (
    Record,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
    to_json,
)
from service.adapters.stores import Clock, Stores
from service.ports import HistoryPage, TokenCounter


@asynccontextmanager
async def open_memory_store(counter: TokenCounter, clock: Clock) -> AsyncIterator[Stores]:
    """Open an empty store; ``clock`` times rows that bring no time along."""
    yield Stores(history=MemoryHistory(counter, clock), profiles=MemoryProfiles())


class MemoryHistory:
    """The `HistoryStore` that holds rows as JSON in sorted lists."""

    def __init__(self, counter: TokenCounter, clock: Clock) -> None:
        self._counter = counter
        self._clock = clock
        self._owners: dict[str, _Owner] = {}
        self._locks = OwnerLocks()

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows that are new by owner and id; returns how many were."""
        name = checked_owner(owner_key)
        async with self._locks.of(name):
            return self._add(name, await read_batch(messages, conversation_id, self._counter))

    def _add(self, name: str, records: Sequence[Record]) -> int:
        if not records:
            return 0
        owner = self._owners.setdefault(name, _Owner())
        stored = len(owner.bodies)
        newest = owner.rows[None][-1].sort_time if stored else microseconds(self._clock())
        for record, sort_time in zip(records, sort_times(records, newest), strict=True):
            if record.id in owner.bodies:
                continue
            owner.bodies[record.id] = record.body
            kept = _Kept(sort_time, len(owner.bodies), record.printed_tokens, record.body)
            for scope in {None, record.conversation_id}:
                insort(owner.rows[scope], kept)
        return len(owner.bodies) - stored

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows within both bounds, newest first."""
        owner = self._owners.get(checked_owner(owner_key), _Owner())
        scope = None if conversation_id is None else well_formed(conversation_id)
        kept = owner.rows.get(scope, [])
        bodies: list[str] = []
        tokens = 0
        for row in reversed(kept):
            if max_rows is not None and len(bodies) >= max_rows:
                break
            if max_tokens is not None and tokens >= max_tokens:
                break
            bodies.append(row.body)
            tokens += row.printed_tokens
        return HistoryPage(rows=[json.loads(body) for body in bodies], total=len(kept))

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in their order; those that there are."""
        bodies = self._owners.get(checked_owner(owner_key), _Owner()).bodies
        return [json.loads(bodies[name]) for name in map(well_formed, ids) if name in bodies]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def erase(self, owner_key: str) -> int:
        """Delete all rows of an owner; returns how many there were."""
        name = checked_owner(owner_key)
        async with self._locks.of(name):
            return len(self._owners.pop(name, _Owner()).bodies)


class MemoryProfiles:
    """The `ProfileStore` that holds profiles as JSON."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile, or an empty one."""
        profile: dict[str, object] = json.loads(self._bodies.get(checked_owner(owner_key), "{}"))
        return profile

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        self._bodies[checked_owner(owner_key)] = to_json(profile, "/profile")


class _Kept(NamedTuple):
    """A row in its place: tuples sort by time, then by arrival."""

    sort_time: int
    sequence: int
    printed_tokens: int
    body: str


@dataclass(slots=True)
class _Owner:
    """An owner's rows by id, and in order by conversation; None holds them all."""

    bodies: dict[str, str] = field(default_factory=dict)
    rows: dict[str | None, list[_Kept]] = field(default_factory=lambda: defaultdict(list))
