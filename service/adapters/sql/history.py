"""History in an SQL database: what a build reads is found by index, however long the history."""

import json
from collections.abc import Sequence

from sqlalchemy import Result, delete
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from formatters.rows import well_formed
from service.adapters.owner_locks import OwnerLocks
from service.adapters.rows import (
    Record,
    checked_owner,
    microseconds,
    read_batch,
    sort_times,
)
from service.adapters.sql.bodies import read_bodies
from service.adapters.sql.engine import Database
from service.adapters.sql.queries import (
    ADD_MESSAGES,
    ALL_ROWS,
    ALL_TOKENS,
    OWNER,
    TAKE_NUMBERS,
    Scope,
    scope,
)
from service.adapters.sql.schema import key, messages, owners, summaries
from service.adapters.stores import Clock
from service.ports import HistoryPage, TokenCounter


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
            return await _insert(connection, owner, await self._placed(connection, owner, records))

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
        conversation = None if conversation_id is None else key(well_formed(conversation_id))
        # A negative LIMIT would be none at all.
        limit = ALL_ROWS if max_rows is None else max(max_rows, 0)

        async def read(connection: AsyncConnection) -> HistoryPage:
            return await _page(connection, scope(owner, conversation), limit, max_tokens)

        return await self._database.read(read)

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in their order; those that there are."""
        owner = key(checked_owner(owner_key))
        names = [key(well_formed(name)) for name in ids]
        bodies = await self._database.read(lambda found: read_bodies(found, owner, names))
        return [json.loads(bodies[name]) for name in names if name in bodies]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        return list((await self.recent(owner_key, max_rows=limit)).rows)

    async def erase(self, owner_key: str) -> int:
        """Delete all rows of an owner, and their summaries; returns how many rows there were."""
        owner = key(checked_owner(owner_key))

        async def forget(connection: AsyncConnection) -> int:
            for table in (owners, summaries):
                await connection.execute(delete(table).where(table.c.owner_key == owner))
            erased = await connection.execute(delete(messages).where(messages.c.owner_key == owner))
            return erased.rowcount

        async with self._locks.of(owner):
            return await self._database.write(forget)

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
    _, rows, tokens = last
    beyond = ALL_TOKENS if max_tokens is None else tokens - max(max_tokens, 0)
    bounds = {"beyond": beyond, "limit": limit}
    bodies = await connection.scalars(of.statements.page, {**of.keys, **bounds})
    return HistoryPage(rows=[json.loads(body) for body in bodies], total=rows)


async def _next_sequence(connection: AsyncConnection, owner: str, rows: int) -> int:
    """Take numbers for so many rows; returns the first. Other appends to the owner wait."""
    numbers = {"owner_key": owner, "last_sequence": rows}
    last = (await connection.execute(TAKE_NUMBERS, numbers)).scalar_one()
    return last - rows + 1


async def _insert(
    connection: AsyncConnection, owner: str, values: Sequence[dict[str, object]]
) -> int:
    """Insert rows that are new and bring the totals up to date; returns how many were new."""
    new: Result[str | None, int, int] = await connection.execute(ADD_MESSAGES, values)
    places: dict[str | None, list[tuple[int, int]]] = {}
    for conversation, sort_time, sequence in new:
        for name in {None, conversation}:
            places.setdefault(name, []).append((sort_time, sequence))
    for name, added in places.items():
        of = scope(owner, name)
        sort_time, sequence = min(added)
        first = {"from_time": sort_time, "from_sequence": sequence}
        await connection.execute(of.statements.recount, {**of.keys, **first})
    return len(places.get(None, ()))
