"""The stores of history, profiles and summaries in this process's memory."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from formatters.model import Row, Summary
from formatters.rows import fix_surrogates
from service.adapters.memory.owner_rows import OwnerRows
from service.adapters.store_records import (
    OwnerLocks,
    Record,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
    to_json,
)
from service.ports.services import TokenCounter
from service.ports.stores import ArchivedRow, Archiving, Clock, HistoryPage, HistoryStats, Stores
from service.ports.summaries import Expected, fingerprint
from service.recall.search import SearchRequest


@asynccontextmanager
async def open_memory_store(counter: TokenCounter, clock: Clock) -> AsyncIterator[Stores]:
    """Open empty stores; ``clock`` gives the time of rows that have none."""
    history = MemoryHistory(counter, clock)
    yield Stores(
        history=history,
        profiles=MemoryProfiles(),
        summaries=MemorySummaries(history, clock),
    )


class MemoryHistory:
    """The `HistoryStore` in memory; it holds rows as JSON in sorted lists."""

    def __init__(self, counter: TokenCounter, clock: Clock) -> None:
        self._counter = counter
        self._clock = clock
        self._owners: dict[str, OwnerRows] = {}
        #: By owner; erased with the rows.
        self.summaries: dict[str, list[Summary]] = {}
        #: By owner, the token of the lease on summarising, and its end in microseconds since 1970.
        self.claims: dict[str, tuple[str, int]] = {}
        self._locks = OwnerLocks()

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows that are new by owner and id; returns how many were new."""
        owner_key = checked_owner(owner_key)
        async with self._locks.of(owner_key):
            return self._add(owner_key, await read_batch(messages, conversation_id, self._counter))

    def _add(self, owner_key: str, records: Sequence[Record]) -> int:
        if not records:
            return 0
        owner = self._owners.setdefault(owner_key, OwnerRows())
        stored = len(owner.stored)
        newest = microseconds(self._clock()) if owner.newest is None else owner.newest
        for record, sort_time in zip(records, sort_times(records, newest), strict=True):
            owner.add(record, sort_time)
        return len(owner.stored) - stored

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows within both bounds, newest first."""
        owner = self._of(owner_key)
        scope = None if conversation_id is None else fix_surrogates(conversation_id)
        bodies: list[str] = []
        starts: list[tuple[int, int]] = []
        tokens = native = 0
        for row in owner.newest_first(scope):
            if max_rows is not None and len(bodies) >= max_rows:
                break
            if max_tokens is not None and tokens >= max_tokens:
                break
            bodies.append(row.body)
            tokens += row.printed_tokens
            native += row.native_tokens
            starts.append((owner.tokens[scope] - tokens, owner.native[scope] - native))
        return HistoryPage(
            rows=[json.loads(body) for body in bodies],
            total=len(owner.shown.get(scope, [])),
            starts=tuple(start for start, _ in starts),
            native_starts=tuple(start for _, start in starts),
        )

    async def search(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        terms: Sequence[str],
        before: str,
        max_rows: int,
    ) -> list[Row]:
        """Return the rows that match terms best, with the rows around them, newest first."""
        scope = None if conversation_id is None else fix_surrogates(conversation_id)
        request = SearchRequest(terms, fix_surrogates(before), max_rows)
        return [json.loads(row.body) for row in self._of(owner_key).search(scope, request)]

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the stored rows with these ids, in their order."""
        owner = self._of(owner_key)
        return [owner.row(row_id) for row_id in map(fix_surrogates, ids) if row_id in owner.stored]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def erase(self, owner_key: str) -> int:
        """Delete all of an owner; returns how many rows there were."""
        owner_key = checked_owner(owner_key)
        async with self._locks.of(owner_key):
            self.summaries.pop(owner_key, None)
            self.claims.pop(owner_key, None)
            return len(self._owners.pop(owner_key, OwnerRows()).stored)

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete an owner's oldest rows from before a moment; returns how many."""
        until = microseconds(before)
        times = [(owner.oldest(), owner_key) for owner_key, owner in self._owners.items()]
        old = [(time, owner_key) for time, owner_key in times if time is not None and time < until]
        if not old:
            return 0
        _, owner_key = min(old)
        async with self._locks.of(owner_key):
            expired = self._of(owner_key).expire(until, limit)
            self.forget(owner_key, expired)
            self._drop_if_empty(owner_key)
        return len(expired)

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment; returns how many."""
        deleted = 0
        for owner_key, owner in list(self._owners.items()):
            old = min(sum(copy.at < before for copy in owner.archive), limit - deleted)
            del owner.archive[:old]
            deleted += old
            self._drop_if_empty(owner_key)
        return deleted

    def _drop_if_empty(self, owner_key: str) -> None:
        owner = self._of(owner_key)
        if not owner.stored and not owner.archive:
            self._owners.pop(owner_key, None)

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Flag rows as fallen out; returns those that were not flagged before."""
        owner = self._of(owner_key)
        new = owner.flag_fallen(map(fix_surrogates, ids))
        if archiving:
            owner.archive_rows(new, archiving, self._clock())
        return new

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the archive, newest first."""
        return self._of(owner_key).archive[::-1][:limit]

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows; returns how many were not hidden before."""
        async with self._locks.of(checked_owner(owner_key)):
            self.forget(owner_key, ids)
            return self._of(owner_key).prune(map(fix_surrogates, ids))

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again; returns how many were hidden."""
        async with self._locks.of(checked_owner(owner_key)):
            return self._of(owner_key).restore(map(fix_surrogates, ids))

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what the store holds of an owner."""
        summaries = len(self.summaries.get(checked_owner(owner_key), []))
        return replace(self._of(owner_key).stats(), summaries=summaries)

    def forget(self, owner_key: str, ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        summaries = self.summaries.get(checked_owner(owner_key), [])
        before = len(summaries)
        summaries[:] = [summary for summary in summaries if summary.covers.isdisjoint(ids)]
        return before - len(summaries)

    def _of(self, owner_key: str) -> OwnerRows:
        owner = self._owners.get(checked_owner(owner_key))
        return OwnerRows() if owner is None else owner


class MemoryProfiles:
    """The `ProfileStore` in memory; it holds profiles as JSON."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile, or an empty one."""
        profile: dict[str, object] = json.loads(self._bodies.get(checked_owner(owner_key), "{}"))
        return profile

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        self._bodies[checked_owner(owner_key)] = to_json(profile, "/profile")

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        return self._bodies.pop(checked_owner(owner_key), None) is not None


class MemorySummaries:
    """The `SummaryStore` in memory; the history holds the summaries of its owners."""

    def __init__(self, history: MemoryHistory, clock: Clock) -> None:
        self._history = history
        self._clock = clock

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of the oldest rows that they cover."""
        owned = self._history.summaries.get(checked_owner(owner_key), [])
        summaries = [summary for summary in owned if summary.conversation_id == conversation_id]
        if len(summaries) < 2:
            return summaries
        page = await self._history.recent(owner_key, conversation_id)
        positions = {row["id"]: index for index, row in enumerate(page.rows[::-1])}
        return sorted(summaries, key=lambda summary: positions.get(summary.message_ids[0], 0))

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, if the scope's state is as expected."""
        owner, conversation = summary.owner_key, summary.conversation_id
        stored = {other.id for other in await self.read(owner, conversation)}
        rows = await self._history.rows(owner, summary.message_ids)
        page = await self._history.recent(owner, conversation)
        ids = [row["id"] for row in page.rows[::-1]]
        if (
            stored != expected.summaries
            or ids[expected.rows - 1 : expected.rows] != [expected.last_id]
            or not summary.covers <= set(ids)
            or fingerprint(rows) != summary.fingerprint
        ):
            return False
        summaries = self._history.summaries.setdefault(owner, [])
        added = replace(summary, text=fix_surrogates(summary.text))
        summaries[:] = [*(other for other in summaries if other.id not in replaces), added]
        return True

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        return self._history.forget(owner_key, message_ids)

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take a lease on summarising an owner's history; returns False if another holds it."""
        now = microseconds(self._clock())
        holder, until = self._history.claims.get(checked_owner(owner_key), (token, 0))
        if until > now and holder != token:
            return False
        self._history.claims[owner_key] = (token, now + round(seconds * 1_000_000))
        return True

    async def release(self, owner_key: str, token: str) -> None:
        """Give the lease back, if ``token`` still holds it."""
        if self._history.claims.get(owner_key, ("", 0))[0] == token:
            del self._history.claims[owner_key]
