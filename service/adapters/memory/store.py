"""The stores of history, profiles, summaries and vectors in this process's memory."""

import json
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from heapq import nlargest
from itertools import accumulate, islice
from operator import sub

from formatters.model import Row, Summary
from formatters.rows import StoredRows, fix_surrogates, read_content
from service.adapters.memory.owner_rows import OwnerRows, StoredRow
from service.adapters.store_records import (
    OwnerLocks,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
    to_json,
)
from service.ports.services import LoadCounter
from service.ports.stores import (
    ArchivedRow,
    Archiving,
    Clock,
    Expected,
    HistoryPage,
    HistoryStats,
    NumberedVector,
    SearchRequest,
    Stores,
    WaitingRows,
    rows_fingerprint,
)


@asynccontextmanager
async def open_memory_store(load_counter: LoadCounter, clock: Clock) -> AsyncIterator[Stores]:
    """Open empty stores; ``clock`` gives the time of rows that have none."""
    history = MemoryHistory(load_counter, clock)
    yield Stores(
        history=history,
        profiles=MemoryProfiles(),
        summaries=MemorySummaries(history, clock),
        vectors=MemoryVectors(history),
    )


class MemoryHistory:
    """The `HistoryStore` in memory; it holds rows as JSON in sorted lists."""

    def __init__(self, load_counter: LoadCounter, clock: Clock) -> None:
        self._load_counter = load_counter
        self._clock = clock
        self._owners: dict[str, OwnerRows] = {}
        self._locks = OwnerLocks()
        #: Owners with rows that may have no vector yet, in their order; None for each.
        self.changed: dict[str, None] = {}

    def owner(self, owner_key: str) -> OwnerRows:
        """Return what is stored of an owner; of one that has nothing, nothing is kept."""
        return self._owners.get(checked_owner(owner_key), OwnerRows())

    def new_owner(self, owner_key: str) -> OwnerRows:
        """Return what is stored of an owner, to add to it."""
        return self._owners.setdefault(checked_owner(owner_key), OwnerRows())

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows that are new by owner and id; returns how many were new."""
        async with self._locks.of(checked_owner(owner_key)):
            records = await read_batch(messages, conversation_id, self._load_counter())
            if not records:
                return 0
            owner = self.new_owner(owner_key)
            stored = len(owner.stored)
            newest = microseconds(self._clock()) if owner.newest is None else owner.newest
            for record, sort_time in zip(records, sort_times(records, newest), strict=True):
                owner.add(record, sort_time)
            self.changed[owner_key] = None
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
        owner = self.owner(owner_key)
        scope = None if conversation_id is None else fix_surrogates(conversation_id)
        shown = owner.shown.get(scope, [])
        most = len(shown) if max_rows is None else min(max(max_rows, 0), len(shown))
        newest = islice(reversed(shown), most)
        rows = [*(newest if max_tokens is None else _take_tokens(newest, max_tokens))]
        records = [row.record for row in rows]
        tokens = accumulate(
            [record.printed_tokens for record in records], sub, initial=owner.tokens[scope]
        )
        native = accumulate(
            [record.native_tokens for record in records], sub, initial=owner.native[scope]
        )
        return HistoryPage(
            rows=StoredRows([record.body for record in records]),
            total=len(shown),
            starts=tuple(tokens)[1:],
            native_starts=tuple(native)[1:],
        )

    async def search(
        self, owner_key: str, conversation_id: str | None, request: SearchRequest
    ) -> Sequence[Row]:
        """Return the rows that match terms best, with the rows around them, newest first."""
        scope = None if conversation_id is None else fix_surrogates(conversation_id)
        request = replace(request, before=fix_surrogates(request.before))
        found = self.owner(owner_key).search(scope, request)
        return StoredRows([row.record.body for row in found])

    async def rows(self, owner_key: str, ids: Sequence[str], *, pruned: bool = True) -> list[Row]:
        """Return the stored rows with these ids, in their order."""
        owner = self.owner(owner_key)
        return [
            json.loads(owner.stored[row_id].record.body)
            for row_id in map(fix_surrogates, ids)
            if row_id in owner.stored and (pruned or row_id not in owner.pruned)
        ]

    async def around(
        self, owner_key: str, conversation_id: str | None, row_id: str, *, before: int, after: int
    ) -> list[Row]:
        """Return a row with the rows before and after it, oldest first."""
        owner = self.owner(owner_key)
        scope = None if conversation_id is None else fix_surrogates(conversation_id)
        rows, centre = owner.shown.get(scope, []), owner.stored.get(fix_surrogates(row_id))
        index = len(rows) if centre is None else bisect_left(rows, centre)
        if rows[index : index + 1] != [centre]:
            return []
        near = rows[max(index - before, 0) : index + after + 1]
        return [json.loads(row.record.body) for row in near]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def erase(self, owner_key: str) -> int:
        """Delete all of an owner; returns how many rows there were."""
        async with self._locks.of(checked_owner(owner_key)):
            self.changed.pop(owner_key, None)
            return len(self._owners.pop(owner_key, OwnerRows()).stored)

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete an owner's oldest rows from before a moment; returns how many."""
        until = microseconds(before)
        oldest = [
            (min(owner.stored.values()).sort_time, owner_key)
            for owner_key, owner in self._owners.items()
            if owner.stored
        ]
        sort_time, owner_key = min(oldest, default=(until, ""))
        if sort_time >= until:
            return 0
        async with self._locks.of(owner_key):
            owner = self.owner(owner_key)
            old = [row for row in owner.stored.values() if row.sort_time < until]
            expired = sorted(old)[:limit]
            owner.expire(expired)
            self.forget(owner_key, {row.record.id for row in expired})
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
        owner = self.owner(owner_key)
        if not owner.stored and not owner.archive:
            self._owners.pop(owner_key, None)
            self.changed.pop(owner_key, None)

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Flag rows as fallen out; returns those that were not flagged before."""
        owner = self.owner(owner_key)
        flaggable = owner.stored.keys() - owner.pruned - owner.fallen
        new = [row_id for row_id in dict.fromkeys(map(fix_surrogates, ids)) if row_id in flaggable]
        owner.fallen.update(new)
        if archiving:
            now = self._clock()
            owner.archive += [
                ArchivedRow(
                    row=json.loads(owner.stored[row_id].record.body),
                    reason=archiving.reasons[row_id],
                    run_id=fix_surrogates(archiving.run_id),
                    build_id=archiving.build_id,
                    at=now,
                )
                for row_id in new
            ]
        return new

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the archive, newest first."""
        return self.owner(owner_key).archive[::-1][:limit]

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows; returns how many were not hidden before."""
        async with self._locks.of(checked_owner(owner_key)):
            self.forget(owner_key, ids)
            owner = self.owner(owner_key)
            selected = (owner.stored.keys() & map(fix_surrogates, ids)) - owner.pruned
            for row_id in selected:
                owner.hide(owner.stored[row_id])
            owner.pruned |= selected
            return len(selected)

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again; returns how many were hidden."""
        async with self._locks.of(checked_owner(owner_key)):
            owner = self.owner(owner_key)
            selected = owner.pruned & set(map(fix_surrogates, ids))
            for row_id in selected:
                owner.show(owner.stored[row_id])
                self.changed[owner_key] = None
            owner.pruned -= selected
            return len(selected)

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what the store holds of an owner."""
        owner = self.owner(owner_key)
        shown = owner.shown.get(None, [])
        return HistoryStats(
            rows=len(shown),
            tokens=sum(row.record.printed_tokens for row in shown),
            pruned=len(owner.pruned),
            fallen=len(owner.fallen),
            archived=len(owner.archive),
            summaries=len(owner.summaries),
        )

    def forget(self, owner_key: str, ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        owner = self.owner(owner_key)
        kept = [summary for summary in owner.summaries if summary.covers.isdisjoint(ids)]
        forgotten = len(owner.summaries) - len(kept)
        owner.summaries = kept
        return forgotten


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
        owned = self._history.owner(owner_key).summaries
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
            or rows_fingerprint(rows) != summary.fingerprint
        ):
            return False
        rows_of = self._history.owner(owner)
        added = replace(summary, text=fix_surrogates(summary.text))
        rows_of.summaries = [
            *(other for other in rows_of.summaries if other.id not in replaces),
            added,
        ]
        return True

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        return self._history.forget(owner_key, message_ids)

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take a lease on summarising an owner's history; returns False if another holds it."""
        now = microseconds(self._clock())
        owner = self._history.new_owner(owner_key)
        holder, until = owner.claim
        if until > now and holder != token:
            return False
        owner.claim = (token, now + round(seconds * 1_000_000))
        return True

    async def release(self, owner_key: str, token: str) -> None:
        """Give the lease back, if ``token`` still holds it."""
        owner = self._history.owner(owner_key)
        if owner.claim[0] == token:
            owner.claim = ("", 0)


class MemoryVectors:
    """The `VectorStore` in memory; the history holds the vectors of its owners."""

    is_local = True

    def __init__(self, history: MemoryHistory) -> None:
        self._history = history

    def follow(self) -> None:
        """Do nothing: all rows are followed."""

    async def queue_missing(self, model: str) -> None:
        """Do nothing: there were no rows before."""

    async def take(
        self, model: str, limit: int, owner_key: str | None = None
    ) -> WaitingRows | None:
        """Return at most ``limit`` rows of one owner without a vector of a model; None if none."""
        changed = self._history.changed
        for name in [*changed] if owner_key is None else changed.keys() & {owner_key}:
            if waiting := self._history.owner(name).without_vector(model)[:limit]:
                changed[name] = changed.pop(name)  # others are next, also if this one fails
                return WaitingRows(name, [json.loads(row.record.body) for row in waiting])
            changed.pop(name)
        return None

    async def put(self, waiting: WaitingRows, model: str, vectors: Mapping[str, bytes]) -> None:
        """Store the vectors of rows that were taken, by id; rows deleted meanwhile get none."""
        owner = self._history.owner(waiting.owner_key)
        for row in waiting.rows:
            row_id, text = str(row["id"]), read_content(row["content"])
            stored = owner.stored.get(row_id)
            # a deleted row's id may have another text by now
            if row_id in vectors and stored and stored.record.said == text:
                owner.vectors[row_id] = (model, vectors[row_id])

    async def read(self, owner_key: str, model: str, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors of a model that the owner's rows with these ids have, by id."""
        vectors = self._history.owner(owner_key).vectors
        found = {row_id: vectors[row_id] for row_id in ids if row_id in vectors}
        return {row_id: packed for row_id, (made_by, packed) in found.items() if made_by == model}

    async def newest(
        self, owner_key: str, model: str, limit: int, after: int
    ) -> Sequence[NumberedVector]:
        """Return the vectors of a model that the newest rows have, newest first."""
        owner = self._history.owner(owner_key)
        shown = owner.shown.get(None, ())
        rows = [row for row in shown if row.sequence > after and row.record.is_embedded]
        newest = nlargest(limit, rows, key=lambda row: row.sequence)
        made = ((row, owner.vectors.get(row.record.id)) for row in newest)
        return [
            NumberedVector(row.sequence, row.record.id, row.record.conversation_id, each[1])
            for row, each in made
            if each and each[0] == model
        ]


def _take_tokens(newest: Iterable[StoredRow], tokens: int) -> Iterator[StoredRow]:
    """Yield rows up to the one at which their printed tokens reach ``tokens``."""
    for row in newest:
        if tokens <= 0:
            return
        yield row
        tokens -= row.record.printed_tokens
