"""The stores of an SQL database; a build reads ranges of indexes, however long the history."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import structlog
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from formatters.rows import StoredRows, fix_surrogates
from service.adapters.sql import queries
from service.adapters.sql.databases import (
    DEFAULTS,
    NEWEST,
    find_revision,
    open_database,
    require_newest,
    warn_of_pool,
)
from service.adapters.sql.engine import Database
from service.adapters.sql.history_search import search_rows
from service.adapters.sql.queries import (
    ChangedRow,
    batches,
    conversation_of,
    execute_by_ids,
    from_key,
    index_rows,
    key,
    lock_owner,
    owned,
    owner_of,
    read_bodies,
    recount,
    row_limit,
    scope,
    take_numbers,
    unindex_rows,
)
from service.adapters.sql.reindexing import complete_index, is_current
from service.adapters.sql.schema import archive, insert, profiles
from service.adapters.sql.summary_store import SqlSummaries, forget_rows
from service.adapters.sql.vector_store import SqlVectors
from service.adapters.store_records import (
    OwnerLocks,
    Record,
    from_microseconds,
    microseconds,
    read_batch,
    sort_times,
    terms_in,
    to_json,
)
from service.config.endpoints import StoreSettings
from service.ports.services import LoadCounter
from service.ports.stores import (
    ArchivedRow,
    Archiving,
    Clock,
    HistoryPage,
    HistoryStats,
    SearchRequest,
    Stores,
)

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_sql_store(
    url: str, load_counter: LoadCounter, clock: Clock, limits: StoreSettings = DEFAULTS
) -> AsyncIterator[Stores]:
    """Open the stores of a database; ``clock`` gives the time of rows that have none.

    SQLite files are upgraded to the newest schema, other databases have to be at it.

    Raises:
        ConfigError: The URL cannot be used, or the driver is not installed.
        SchemaError: The schema is not the newest.
        StoreError: The database cannot be opened or upgraded.
    """
    async with aclosing(open_database(url, limits)) as database:
        if not database.driver.upgrades_itself:
            await require_newest(database)
            await warn_of_pool(database)
        elif await find_revision(database) == NEWEST:
            await complete_index(database)
        else:
            from service.adapters.sql.migrate import upgrade  # noqa: PLC0415 - loads Alembic

            await upgrade(url, limits)
        if not await database.read(is_current):  # searches find less
            log.warning("store.terms_outdated", command="ctxb db reindex")
        vectors = SqlVectors(database, clock)
        yield Stores(
            history=SqlHistory(database, load_counter, clock, vectors),
            profiles=SqlProfiles(database),
            summaries=SqlSummaries(database, clock),
            vectors=vectors,
        )


class SqlHistory:
    """The `HistoryStore` in SQL; ``clock`` gives the time of rows that have none."""

    def __init__(
        self, database: Database, load_counter: LoadCounter, clock: Clock, vectors: SqlVectors
    ) -> None:
        self._database = database
        self._load_counter = load_counter
        self._clock = clock
        self._vectors = vectors
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
        statements, keys = scope(owner_of(owner_key), conversation_of(conversation_id))

        async def read_page(connection: AsyncConnection) -> HistoryPage:
            newest = (await connection.execute(statements.newest, keys)).first()
            if newest is None:
                return HistoryPage(rows=[])
            _, total_rows, _, end = newest
            beyond = queries.ALL_TOKENS
            if max_tokens is not None:
                beyond = max(end - max(max_tokens, 0), queries.ALL_TOKENS)
            bounds = {"beyond": beyond, "limit": row_limit(max_rows)}
            rows = (await connection.execute(statements.page, {**keys, **bounds})).all()
            # by columns, as a name is looked up in each row
            bodies, starts, native_starts = zip(*rows, strict=True) if rows else ((), (), ())
            return HistoryPage(
                rows=StoredRows(bodies),
                total=total_rows,
                starts=starts,
                native_starts=native_starts,
            )

        return await self._database.read(read_page, at_once=True)

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def search(
        self, owner_key: str, conversation_id: str | None, request: SearchRequest
    ) -> StoredRows:
        """Return the rows that match terms best, with the rows around them, newest first."""
        owner, conversation = owner_of(owner_key), conversation_of(conversation_id)
        before, max_rows = key(fix_surrogates(request.before)), row_limit(request.max_rows)
        query = replace(request, before=before, max_rows=max_rows)
        return await self._database.read(
            lambda c: search_rows(c, owner, conversation, query), by_index=True, at_once=True
        )

    async def rows(self, owner_key: str, ids: Sequence[str], *, pruned: bool = True) -> list[Row]:
        """Return the stored rows with these ids, in their order."""
        owner, row_keys = owner_of(owner_key), _row_keys(ids)
        bodies = await self._database.read(
            lambda c: read_bodies(c, owner, row_keys, pruned=pruned), by_index=True
        )
        return [json.loads(bodies[row_key]) for row_key in row_keys if row_key in bodies]

    async def around(
        self, owner_key: str, conversation_id: str | None, row_id: str, *, before: int, after: int
    ) -> list[Row]:
        """Return a row with the rows before and after it, oldest first."""
        owner, conversation = owner_of(owner_key), conversation_of(conversation_id)
        statements, keys = scope(owner, conversation)
        centre = {"in_owner": owner, "row_id": key(fix_surrogates(row_id))}

        async def read_near(connection: AsyncConnection) -> list[Row]:
            row = (await connection.execute(queries.SHOWN_ROW, centre)).first()
            if row is None or conversation not in (None, row.conversation_id):
                return []
            position = {**keys, "at_time": row.sort_time, "at_sequence": row.sequence}
            older, newer = [
                (await connection.execute(near, {**position, "limit": row_limit(limit)})).all()
                for near, limit in ((statements.older, before), (statements.newer, after))
            ]
            return [json.loads(each.body) for each in (*older[::-1], row, *newer)]

        return await self._database.read(read_near, by_index=True)

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the archive, newest first."""
        newest = {"in_owner": owner_of(owner_key), "limit": row_limit(limit)}
        copies = await self._database.read(
            lambda c: c.execute(queries.ARCHIVED, newest), by_index=True
        )
        return [
            ArchivedRow(
                row=json.loads(copy.body),
                reason=copy.reason,
                run_id=from_key(copy.run_id),
                build_id=copy.build_id,
                at=from_microseconds(copy.archived_at),
            )
            for copy in copies
        ]

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what the store holds of an owner."""
        owner = {"in_owner": owner_of(owner_key)}

        async def count(connection: AsyncConnection) -> HistoryStats:
            newest = (await connection.execute(queries.OF_OWNER.newest, owner)).first()
            counts = (await connection.execute(queries.COUNTS, owner)).one()
            return HistoryStats(
                rows=newest.rows if newest else 0,
                tokens=newest.tokens if newest else 0,
                pruned=counts.pruned,
                fallen=counts.fallen,
                archived=counts.archive,
                summaries=counts.summaries,
            )

        return await self._database.read(count)

    # --- adding rows -------------------------------------------------------------------------

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows that are new by owner and id, all or none; returns how many were new."""
        owner = owner_of(owner_key)
        async with self._locks.of(owner):
            records = await read_batch(messages, conversation_id, self._load_counter())
            if not records:
                return 0
            return await self._database.write(
                lambda c: self._insert(c, owner, records), by_index=True
            )

    async def _insert(
        self, connection: AsyncConnection, owner: str, records: Sequence[Record]
    ) -> int:
        """Insert rows that are new, index and count them; returns how many were new."""
        values = await self._column_values(connection, owner, records)
        added = [ChangedRow(*row) for row in await connection.execute(queries.ADD_ROWS, values)]
        by_key = {key(record.id): record for record in records}
        await index_rows(connection, owner, ((row, by_key[row.id].terms) for row in added))
        if added and self._vectors.follows:
            await self._vectors.queue(connection, owner)
        return await recount(connection, owner, added)

    async def _column_values(
        self, connection: AsyncConnection, owner: str, records: Sequence[Record]
    ) -> list[dict[str, object]]:
        """Return the columns of new rows; their totals are written by `recount`."""
        first = await take_numbers(connection, owner, len(records))
        newest = (await connection.execute(queries.OF_OWNER.newest, {"in_owner": owner})).first()
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
                "tokenizer": self._load_counter().name,
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
        owner = owner_of(owner_key)
        ids_by_key = dict(zip(_row_keys(ids), ids, strict=True))

        async def flag(connection: AsyncConnection) -> list[str]:
            if not await lock_owner(connection, owner):
                return []
            flagged = await execute_by_ids(connection, queries.FLAG_FALLEN, owner, list(ids_by_key))
            new_keys = ids_by_key.keys() & {row.id for row in flagged}
            new = [row_id for row_key, row_id in ids_by_key.items() if row_key in new_keys]
            if new and archiving:
                await self._archive(connection, owner, new, archiving)
            return new

        return await self._database.write(flag, by_index=True)

    async def _archive(
        self, connection: AsyncConnection, owner: str, ids: Sequence[str], archiving: Archiving
    ) -> None:
        row_keys, now = _row_keys(ids), microseconds(self._clock())
        bodies = await read_bodies(connection, owner, row_keys)
        copies = [
            {
                "owner_key": owner,
                "archived_at": now,
                "reason": archiving.reasons[row_id],
                "run_id": key(fix_surrogates(archiving.run_id)),
                "build_id": archiving.build_id,
                "body": bodies[row_key],
            }
            for row_id, row_key in zip(ids, row_keys, strict=True)
        ]
        await connection.execute(insert(archive), copies)

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows; returns how many were not hidden before."""
        return await self._set_pruned(owner_key, ids, pruned=True)

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again; returns how many were hidden."""
        return await self._set_pruned(owner_key, ids, pruned=False)

    async def _set_pruned(self, owner_key: str, ids: Sequence[str], *, pruned: bool) -> int:
        owner, row_keys = owner_of(owner_key), _row_keys(ids)

        async def change(connection: AsyncConnection) -> int:
            if not await lock_owner(connection, owner):
                return 0
            values = {"now_pruned": int(pruned)}
            rows = await execute_by_ids(connection, queries.SET_PRUNED, owner, row_keys, values)
            changed = [ChangedRow(*row) for row in rows]
            if pruned:
                await forget_rows(connection, owner, ids)
                await unindex_rows(connection, owner, [row.sequence for row in changed])
            else:
                bodies = await read_bodies(connection, owner, [row.id for row in changed])
                shown = ((row, terms_in(bodies[row.id])) for row in changed)
                await index_rows(connection, owner, shown)
                await self._vectors.queue_again(
                    connection, owner, [row.sequence for row in changed]
                )
            return await recount(connection, owner, changed)

        async with self._locks.of(owner):
            return await self._database.write(change, by_index=True)

    # --- deleting ----------------------------------------------------------------------------

    async def erase(self, owner_key: str) -> int:
        """Delete all of an owner; returns how many rows there were."""
        owner = owner_of(owner_key)

        async def erase_all(connection: AsyncConnection) -> int:
            # locks the owner, also one without rows: appends wait
            await take_numbers(connection, owner)
            for statement in queries.ERASE:
                erased = await connection.execute(statement, {"in_owner": owner})
            return erased.rowcount

        async with self._locks.of(owner):
            return await self._database.write(erase_all, by_index=True)

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete an owner's oldest rows from before a moment; returns how many."""
        until, most = microseconds(before), row_limit(limit)
        # one owner in a transaction: workers that lock two could wait for each other
        oldest = {"until": until}
        while most and (
            owner := await self._database.read(lambda c: c.scalar(queries.EXPIRED_OWNER, oldest))
        ):
            expire = partial(_expire_rows, owner=owner, until=until, limit=most)
            if deleted := await self._database.write(expire, by_index=True):
                return deleted
            # another worker has deleted them meanwhile: other owners may have expired rows
        return 0

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment; returns how many."""
        expired = {"until": microseconds(before), "limit": row_limit(limit)}
        oldest = {**expired, "limit": 1}
        if await self._database.read(lambda c: c.scalar(queries.EXPIRED_COPIES, oldest)) is None:
            return 0  # without waiting for the lock of a writer
        deleted = await self._database.write(
            lambda c: c.execute(queries.DELETE_COPIES, expired), by_index=True
        )
        return deleted.rowcount


async def _expire_rows(connection: AsyncConnection, owner: str, until: int, limit: int) -> int:
    """Delete an owner's oldest rows from before a moment, at most ``limit``; returns how many.

    Their flags and the summaries that cover any of them are deleted too. The totals of the other
    rows stay as they are: see `schema.messages`.
    """
    # from here on no append can put a row before those to delete, also if the owner is deleted
    await take_numbers(connection, owner)
    oldest = {"in_owner": owner, "until": until, "limit": limit}
    expired = (await connection.execute(queries.EXPIRED, oldest)).all()
    ids: Sequence[str] = [row.id for row in expired]
    await unindex_rows(connection, owner, [row.sequence for row in expired])
    await forget_rows(connection, owner, {from_key(row_id) for row_id in ids})
    for batch in batches(ids):
        for statement in queries.DELETE_ROWS:
            await connection.execute(statement, {"in_owner": owner, "ids": batch})
    if await connection.scalar(queries.REMAINING, {"in_owner": owner}) is None:
        for statement in queries.DELETE_OWNER:
            await connection.execute(statement, {"in_owner": owner})
    return len(ids)


def _row_keys(ids: Sequence[str]) -> list[str]:
    return [key(fix_surrogates(row_id)) for row_id in ids]


_PROFILE: Final = select(profiles.c.body).where(owned(profiles))


class SqlProfiles:
    """The `ProfileStore` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile, or an empty one."""
        owner = {"in_owner": owner_of(owner_key)}
        body = await self._database.read(lambda c: c.scalar(_PROFILE, owner), at_once=True)
        profile: dict[str, object] = {} if body is None else json.loads(body)
        return profile

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        body = to_json(profile, "/profile")
        put = insert(profiles).values(owner_key=owner_of(owner_key), body=body)
        put = put.on_conflict_do_update(
            index_elements=[profiles.c.owner_key], set_={"body": put.excluded.body}
        )
        await self._database.write(lambda connection: connection.execute(put))

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        erase = delete(profiles).where(profiles.c.owner_key == owner_of(owner_key))
        result = await self._database.write(lambda connection: connection.execute(erase))
        return result.rowcount > 0
