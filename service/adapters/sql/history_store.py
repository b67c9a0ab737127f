"""History in an SQL database: what a build reads is found by index, however long the history."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from formatters.rows import fix_surrogates
from service.adapters.sql.deletion import (
    erase_owner,
    expire_copies,
    expire_rows,
    has_expired_copies,
    next_owner,
)
from service.adapters.sql.engine import Database
from service.adapters.sql.marks import (
    copy_fallen,
    count_marks,
    mark_fallen,
    read_archive,
    set_pruned,
)
from service.adapters.sql.queries import (
    ADD_MESSAGES,
    ALL_TOKENS,
    OWNER,
    TAKE_NUMBERS,
    Scope,
    read_bodies,
    row_limit,
    scope,
)
from service.adapters.sql.schema import key
from service.adapters.sql.search import Place, search_rows
from service.adapters.sql.search_index import Changed, Found, index_rows, lock_owner, recount
from service.adapters.sql.summaries import forget_rows
from service.adapters.store_records import (
    Clock,
    OwnerLocks,
    Record,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
)
from service.ports.services import TokenCounter
from service.ports.stores import ArchivedRow, Archiving, HistoryPage, HistoryStats
from service.recall.search import SearchRequest


class SqlHistory:
    """The `HistoryStore` over SQL; ``clock`` times rows that bring no time along."""

    def __init__(self, database: Database, counter: TokenCounter, clock: Clock) -> None:
        self._database = database
        self._counter = counter
        self._clock = clock
        self._locks = OwnerLocks()

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows that are new by owner and id, all or none; returns how many were."""
        owner = key(checked_owner(owner_key))

        async def add(connection: AsyncConnection) -> int:
            placed = await self._placed(connection, owner, records)
            return await _insert(connection, owner, placed, records)

        async with self._locks.of(owner):
            records = await read_batch(messages, conversation_id, self._counter)
            return await self._database.write(add) if records else 0

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows within both bounds, newest first."""
        owner = key(checked_owner(owner_key))
        conversation = None if conversation_id is None else key(fix_surrogates(conversation_id))
        limit = row_limit(max_rows)

        async def read(connection: AsyncConnection) -> HistoryPage:
            return await _page(connection, scope(owner, conversation), limit, max_tokens)

        return await self._database.read(read)

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
        owner = key(checked_owner(owner_key))
        conversation = None if conversation_id is None else key(fix_surrogates(conversation_id))
        asked = SearchRequest(terms, key(fix_surrogates(before)), row_limit(max_rows))
        place = Place(owner, conversation)
        return await self._database.read(lambda found: search_rows(found, place, asked))

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in their order; those that there are."""
        owner = key(checked_owner(owner_key))
        names = _keys(ids)
        bodies = await self._database.read(lambda found: read_bodies(found, owner, names))
        return [json.loads(bodies[name]) for name in names if name in bodies]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Mark rows as fallen out; returns those that were not marked before."""
        owner = key(checked_owner(owner_key))
        given = dict(zip(_keys(ids), ids, strict=True))

        async def fall(connection: AsyncConnection) -> list[str]:
            if not await lock_owner(connection, owner):
                return []
            new = await mark_fallen(connection, owner, list(given))
            if archiving:
                reasons = {name: archiving.reasons[given[name]] for name in new}
                await copy_fallen(connection, owner, reasons, archiving, self._clock())
            return [given[name] for name in new]

        return await self._database.write(fall)

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the archive, the last that fell out first."""
        owner = key(checked_owner(owner_key))
        return await self._database.read(lambda found: read_archive(found, owner, limit))

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows; returns how many were not hidden before."""
        return await self._set_pruned(owner_key, ids, pruned=True)

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again; returns how many were hidden."""
        return await self._set_pruned(owner_key, ids, pruned=False)

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what there is of an owner."""
        owner = key(checked_owner(owner_key))
        return await self._database.read(lambda found: count_marks(found, owner))

    async def erase(self, owner_key: str) -> int:
        """Delete all of an owner; returns how many rows there were."""
        owner = key(checked_owner(owner_key))

        async with self._locks.of(owner):
            return await self._database.write(lambda found: erase_owner(found, owner))

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete the oldest rows of an owner from before a moment; returns how many."""
        until, most = microseconds(before), row_limit(limit)
        # one owner a transaction: with two locked, workers could wait for one another
        while most and (owner := await self._database.read(partial(next_owner, until=until))):
            expire = partial(expire_rows, owner=owner, until=until, limit=most)
            if gone := await self._database.write(expire):
                return gone
            # another worker has been there in between: there may be other owners
        return 0

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment; returns how many."""
        until, most = microseconds(before), row_limit(limit)
        if not await self._database.read(lambda found: has_expired_copies(found, until)):
            return 0
        return await self._database.write(lambda found: expire_copies(found, until, most))

    async def _set_pruned(self, owner_key: str, ids: Sequence[str], *, pruned: bool) -> int:
        owner, names = key(checked_owner(owner_key)), _keys(ids)

        async def change(connection: AsyncConnection) -> int:
            if not await lock_owner(connection, owner):
                return 0
            if pruned:
                await forget_rows(connection, owner, ids)
            return await set_pruned(connection, owner, names, pruned=pruned)

        async with self._locks.of(owner):
            return await self._database.write(change)

    async def _placed(
        self, connection: AsyncConnection, owner: str, records: Sequence[Record]
    ) -> list[dict[str, object]]:
        """Return the records as rows of the table: sort times and sequence numbers given out."""
        first = await _next_sequence(connection, owner, len(records))
        last = (await connection.execute(OWNER.newest, {"in_owner": owner})).first()
        before = microseconds(self._clock()) if last is None else last.sort_time
        return [
            {
                "owner_key": owner,
                "id": key(record.id),
                "conversation_id": record.conversation_id and key(record.conversation_id),
                "sort_time": sort_time,
                "sequence": sequence,
                "body": record.body,
                "tokenizer": self._counter.name,
                "tokens": record.tokens,
                "printed_tokens": record.printed_tokens,
                "native_tokens": record.native_tokens,
                # Written by the recount, in the same transaction.
                "owner_rows": 0,
                "owner_tokens": 0,
                "conversation_rows": 0,
                "conversation_tokens": 0,
            }
            for sequence, (record, sort_time) in enumerate(
                zip(records, sort_times(records, before), strict=True), first
            )
        ]


async def _page(
    connection: AsyncConnection, of: Scope, limit: int, max_tokens: int | None
) -> HistoryPage:
    last = (await connection.execute(of.statements.newest, of.keys)).first()
    if last is None:
        return HistoryPage(rows=[])
    beyond = ALL_TOKENS
    if max_tokens is not None:
        beyond = max(last.total - max(max_tokens, 0), ALL_TOKENS)
    bounds = {"beyond": beyond, "limit": limit}
    found = (await connection.execute(of.statements.page, {**of.keys, **bounds})).all()
    return HistoryPage(
        rows=[json.loads(row.body) for row in found],
        total=last.rows,
        starts=tuple(row.start for row in found),
        native_starts=tuple(row.native_start for row in found),
    )


async def _next_sequence(connection: AsyncConnection, owner: str, rows: int) -> int:
    """Take numbers for so many rows; returns the first. Other appends to the owner wait."""
    numbers = {"owner_key": owner, "last_sequence": rows}
    last = (await connection.execute(TAKE_NUMBERS, numbers)).scalar_one()
    return last - rows + 1


async def _insert(
    connection: AsyncConnection,
    owner: str,
    values: Sequence[dict[str, object]],
    records: Iterable[Record],
) -> int:
    """Insert rows that are new, have them found and counted; returns how many were new."""
    new = [Changed(*row) for row in await connection.execute(ADD_MESSAGES, values)]
    given = {key(record.id): record for record in records}
    found = (Found(**row._asdict(), terms=given[row.id].terms) for row in new)
    await index_rows(connection, owner, found)
    return await recount(connection, owner, new)


def _keys(ids: Sequence[str]) -> list[str]:
    return [key(fix_surrogates(name)) for name in ids]
