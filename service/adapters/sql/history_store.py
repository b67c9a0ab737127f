"""The SQL store of histories; a build reads ranges of indexes, however long the history."""

import json
from collections.abc import Sequence
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
from service.adapters.sql.flags import (
    archive_rows,
    count_rows,
    flag_fallen,
    read_archive,
    set_pruned,
)
from service.adapters.sql.history_search import SearchScope, search_rows
from service.adapters.sql.queries import (
    ADD_ROWS,
    ALL_TOKENS,
    OF_OWNER,
    ChangedRow,
    RowScope,
    lock_owner,
    read_bodies,
    recount,
    row_limit,
    scope,
    take_numbers,
)
from service.adapters.sql.schema import key
from service.adapters.sql.search_index import IndexedRow, index_rows
from service.adapters.sql.summary_store import forget_rows
from service.adapters.store_records import (
    OwnerLocks,
    Record,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
)
from service.ports.services import TokenCounter
from service.ports.stores import ArchivedRow, Archiving, Clock, HistoryPage, HistoryStats
from service.recall.search import SearchRequest


class SqlHistory:
    """The `HistoryStore` in SQL; ``clock`` gives the time of rows that have none."""

    def __init__(self, database: Database, counter: TokenCounter, clock: Clock) -> None:
        self._database = database
        self._counter = counter
        self._clock = clock
        self._locks = OwnerLocks()

    # --- reading -----------------------------------------------------------------------------

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows within both bounds, newest first."""
        rows_of = scope(key(checked_owner(owner_key)), _conversation_key(conversation_id))
        limit = row_limit(max_rows)
        return await self._database.read(lambda c: _read_page(c, rows_of, limit, max_tokens))

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

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
        searched = SearchScope(key(checked_owner(owner_key)), _conversation_key(conversation_id))
        request = SearchRequest(terms, key(fix_surrogates(before)), row_limit(max_rows))
        return await self._database.read(lambda c: search_rows(c, searched, request))

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the stored rows with these ids, in their order."""
        owner, row_keys = key(checked_owner(owner_key)), _row_keys(ids)
        bodies = await self._database.read(lambda c: read_bodies(c, owner, row_keys))
        return [json.loads(bodies[row_key]) for row_key in row_keys if row_key in bodies]

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the archive, newest first."""
        owner = key(checked_owner(owner_key))
        return await self._database.read(lambda c: read_archive(c, owner, limit))

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what the store holds of an owner."""
        owner = key(checked_owner(owner_key))
        return await self._database.read(lambda c: count_rows(c, owner))

    # --- adding rows -------------------------------------------------------------------------

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows that are new by owner and id, all or none; returns how many were new."""
        owner = key(checked_owner(owner_key))
        async with self._locks.of(owner):
            records = await read_batch(messages, conversation_id, self._counter)
            if not records:
                return 0
            return await self._database.write(lambda c: self._insert(c, owner, records))

    async def _insert(
        self, connection: AsyncConnection, owner: str, records: Sequence[Record]
    ) -> int:
        """Insert rows that are new, index and count them; returns how many were new."""
        values = await self._column_values(connection, owner, records)
        added = [ChangedRow(*row) for row in await connection.execute(ADD_ROWS, values)]
        by_key = {key(record.id): record for record in records}
        entries = (IndexedRow(**row._asdict(), terms=by_key[row.id].terms) for row in added)
        await index_rows(connection, owner, entries)
        return await recount(connection, owner, added)

    async def _column_values(
        self, connection: AsyncConnection, owner: str, records: Sequence[Record]
    ) -> list[dict[str, object]]:
        """Return the columns of new rows; their totals are written by `recount`."""
        first = await take_numbers(connection, owner, len(records))
        newest = (await connection.execute(OF_OWNER.newest, {"in_owner": owner})).first()
        before = microseconds(self._clock()) if newest is None else newest.sort_time
        totals = ("owner_rows", "owner_tokens", "conversation_rows", "conversation_tokens")
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
                **dict.fromkeys(totals, 0),
            }
            for sequence, (record, sort_time) in enumerate(
                zip(records, sort_times(records, before), strict=True), first
            )
        ]

    # --- flags on rows -----------------------------------------------------------------------

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Flag rows as fallen out; returns those that were not flagged before."""
        owner = key(checked_owner(owner_key))
        ids_by_key = dict(zip(_row_keys(ids), ids, strict=True))

        async def flag(connection: AsyncConnection) -> list[str]:
            if not await lock_owner(connection, owner):
                return []
            new = await flag_fallen(connection, owner, list(ids_by_key))
            if archiving:
                reasons = {row_key: archiving.reasons[ids_by_key[row_key]] for row_key in new}
                await archive_rows(connection, owner, reasons, archiving, self._clock())
            return [ids_by_key[row_key] for row_key in new]

        return await self._database.write(flag)

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows; returns how many were not hidden before."""
        return await self._set_pruned(owner_key, ids, pruned=True)

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again; returns how many were hidden."""
        return await self._set_pruned(owner_key, ids, pruned=False)

    async def _set_pruned(self, owner_key: str, ids: Sequence[str], *, pruned: bool) -> int:
        owner, row_keys = key(checked_owner(owner_key)), _row_keys(ids)

        async def change(connection: AsyncConnection) -> int:
            if not await lock_owner(connection, owner):
                return 0
            if pruned:
                await forget_rows(connection, owner, ids)
            return await set_pruned(connection, owner, row_keys, pruned=pruned)

        async with self._locks.of(owner):
            return await self._database.write(change)

    # --- deleting ----------------------------------------------------------------------------

    async def erase(self, owner_key: str) -> int:
        """Delete all of an owner; returns how many rows there were."""
        owner = key(checked_owner(owner_key))
        async with self._locks.of(owner):
            return await self._database.write(lambda c: erase_owner(c, owner))

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete an owner's oldest rows from before a moment; returns how many."""
        until, most = microseconds(before), row_limit(limit)
        # one owner in a transaction: workers that lock two could wait for each other
        while most and (owner := await self._database.read(partial(next_owner, until=until))):
            expire = partial(expire_rows, owner=owner, until=until, limit=most)
            if deleted := await self._database.write(expire):
                return deleted
            # another worker has deleted them meanwhile: other owners may have expired rows
        return 0

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment; returns how many."""
        until, most = microseconds(before), row_limit(limit)
        if not await self._database.read(lambda c: has_expired_copies(c, until)):
            return 0
        return await self._database.write(lambda c: expire_copies(c, until, most))


async def _read_page(
    connection: AsyncConnection, rows_of: RowScope, limit: int, max_tokens: int | None
) -> HistoryPage:
    statements, keys = rows_of
    newest = (await connection.execute(statements.newest, keys)).first()
    if newest is None:
        return HistoryPage(rows=[])
    beyond = ALL_TOKENS
    if max_tokens is not None:
        beyond = max(newest.total - max(max_tokens, 0), ALL_TOKENS)
    bounds = {"beyond": beyond, "limit": limit}
    rows = (await connection.execute(statements.page, {**keys, **bounds})).all()
    return HistoryPage(
        rows=[json.loads(row.body) for row in rows],
        total=newest.rows,
        starts=tuple(row.start for row in rows),
        native_starts=tuple(row.native_start for row in rows),
    )


def _conversation_key(conversation_id: str | None) -> str | None:
    return None if conversation_id is None else key(fix_surrogates(conversation_id))


def _row_keys(ids: Sequence[str]) -> list[str]:
    return [key(fix_surrogates(row_id)) for row_id in ids]
