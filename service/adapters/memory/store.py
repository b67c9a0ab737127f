"""History and profiles in this process's memory; gone when it ends."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from formatters.model import Row, Summary
from formatters.rows import fix_surrogates
from service.adapters.memory.owner_rows import OwnerRows
from service.adapters.store_records import (
    Clock,
    OwnerLocks,
    Record,
    Stores,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
    to_json,
)
from service.ports.services import TokenCounter
from service.ports.stores import ArchivedRow, Archiving, HistoryPage, HistoryStats
from service.ports.summaries import Expected, fingerprint
from service.recall.search import SearchRequest


@asynccontextmanager
async def open_memory_store(counter: TokenCounter, clock: Clock) -> AsyncIterator[Stores]:
    """Open an empty store; ``clock`` times rows that bring no time along."""
    history = MemoryHistory(counter, clock)
    yield Stores(
        history=history,
        profiles=MemoryProfiles(),
        summaries=MemorySummaries(history, clock),
    )


class MemoryHistory:
    """The `HistoryStore` that holds rows as JSON in sorted lists."""

    def __init__(self, counter: TokenCounter, clock: Clock) -> None:
        self._counter = counter
        self._clock = clock
        self._owners: dict[str, OwnerRows] = {}
        #: By owner; they go with the rows.
        self.summaries: dict[str, list[Summary]] = {}
        #: Who may summarise an owner's history, and until when, in microseconds since 1970.
        self.claims: dict[str, tuple[str, int]] = {}
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
        if (owner := self._owners.get(name)) is None:
            owner = self._owners[name] = OwnerRows()
        stored = len(owner.kept)
        newest = microseconds(self._clock()) if owner.newest is None else owner.newest
        for record, sort_time in zip(records, sort_times(records, newest), strict=True):
            owner.add(record, sort_time)
        return len(owner.kept) - stored

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
        total = len(owner.shown.get(scope, []))
        rows = [json.loads(body) for body in bodies]
        return HistoryPage(
            rows=rows,
            total=total,
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
        """Return rows that the terms tell of with their neighbours, newest first."""
        scope = None if conversation_id is None else fix_surrogates(conversation_id)
        asked = SearchRequest(terms, fix_surrogates(before), max_rows)
        found = self._of(owner_key).found(scope, asked)
        return [json.loads(row.body) for row in found]

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in their order; those that there are."""
        owner = self._of(owner_key)
        return [owner.row(name) for name in map(fix_surrogates, ids) if name in owner.kept]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def erase(self, owner_key: str) -> int:
        """Delete all of an owner; returns how many rows there were."""
        name = checked_owner(owner_key)
        async with self._locks.of(name):
            self.summaries.pop(name, None)
            self.claims.pop(name, None)
            return len(self._owners.pop(name, OwnerRows()).kept)

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete the oldest rows of an owner from before a moment; returns how many."""
        until = microseconds(before)
        times = [(owner.oldest(), name) for name, owner in self._owners.items()]
        old = [(time, name) for time, name in times if time is not None and time < until]
        if not old:
            return 0
        _, name = min(old)
        async with self._locks.of(name):
            gone = self._of(name).expire(until, limit)
            self.forget(name, gone)
            self._close(name)
        return len(gone)

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment; returns how many."""
        gone = 0
        for name, owner in list(self._owners.items()):
            old = min(sum(copy.at < before for copy in owner.archive), limit - gone)
            del owner.archive[:old]
            gone += old
            self._close(name)
        return gone

    def _close(self, name: str) -> None:
        """Forget an owner of whom nothing is left."""
        owner = self._of(name)
        if not owner.kept and not owner.archive:
            self._owners.pop(name, None)

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Mark rows as fallen out; returns those that were not marked before."""
        owner = self._of(owner_key)
        new = owner.flag_fallen(map(fix_surrogates, ids))
        if archiving:
            owner.copy(new, archiving, self._clock())
        return new

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the archive, the last that fell out first."""
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
        """Count what there is of an owner."""
        summaries = len(self.summaries.get(checked_owner(owner_key), []))
        return replace(self._of(owner_key).stats(), summaries=summaries)

    def forget(self, owner_key: str, ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        kept = self.summaries.get(checked_owner(owner_key), [])
        before = len(kept)
        kept[:] = [each for each in kept if each.covers.isdisjoint(ids)]
        return before - len(kept)

    def _of(self, owner_key: str) -> OwnerRows:
        owner = self._owners.get(checked_owner(owner_key))
        return OwnerRows() if owner is None else owner


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

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        return self._bodies.pop(checked_owner(owner_key), None) is not None


class MemorySummaries:
    """The `SummaryStore` beside a history in memory."""

    def __init__(self, history: MemoryHistory, clock: Clock) -> None:
        self._history = history
        self._clock = clock

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of what they cover."""
        every = self._history.summaries.get(checked_owner(owner_key), [])
        kept = [each for each in every if each.conversation_id == conversation_id]
        if len(kept) < 2:
            return kept
        page = await self._history.recent(owner_key, conversation_id)
        places = {row["id"]: place for place, row in enumerate(page.rows[::-1])}
        return sorted(kept, key=lambda each: places.get(each.message_ids[0], 0))

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, if all is as expected; nothing comes between."""
        owner, conversation = summary.owner_key, summary.conversation_id
        there = {each.id for each in await self.read(owner, conversation)}
        rows = await self._history.rows(owner, summary.message_ids)
        page = await self._history.recent(owner, conversation)
        names = [row["id"] for row in page.rows[::-1]]
        if (
            there != expected.summaries
            or names[expected.rows - 1 : expected.rows] != [expected.last_id]
            or not summary.covers <= set(names)
            or fingerprint(rows) != summary.fingerprint
        ):
            return False
        kept = self._history.summaries.setdefault(owner, [])
        added = replace(summary, text=fix_surrogates(summary.text))
        kept[:] = [*(each for each in kept if each.id not in replaces), added]
        return True

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        return self._history.forget(owner_key, message_ids)

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take the right to summarise an owner's history, unless another has it."""
        now = microseconds(self._clock())
        holder, until = self._history.claims.get(checked_owner(owner_key), (token, 0))
        if until > now and holder != token:
            return False
        self._history.claims[owner_key] = (token, now + round(seconds * 1_000_000))
        return True

    async def release(self, owner_key: str, token: str) -> None:
        """Give back the right to summarise, if it is still this one's."""
        if self._history.claims.get(owner_key, ("", 0))[0] == token:
            del self._history.claims[owner_key]
