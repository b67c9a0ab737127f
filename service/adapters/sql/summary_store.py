"""The SQL store of summaries."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Final

from cachetools import LRUCache
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Summary
from formatters.times import parse_timestamp
from service.adapters.sql.engine import Database
from service.adapters.sql.queries import (
    conversation_of,
    delete_by_ids,
    key,
    lock_owner,
    owner_of,
    read_bodies,
    scope,
)
from service.adapters.sql.schema import claims, insert, messages, summaries
from service.adapters.store_records import microseconds, to_json
from service.ports.stores import Clock, Expected, rows_fingerprint

#: Size of the cache of summaries. A summary counts `SUMMARY_SIZE` and one for each row that it
#: covers, whose id it holds, some 100 bytes each. Parsing one that covers thousands of rows takes
#: a millisecond.
CACHE_SIZE: Final = 200_000
SUMMARY_SIZE: Final = 100

_DELETE: Final = delete_by_ids(summaries)
_TIMES: Final = ("first_timestamp", "last_timestamp", "created")


class SqlSummaries:
    """The `SummaryStore` in SQL; `SqlHistory` deletes an owner's summaries with the history."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # by owner and id; a summary never changes
        self._cache: LRUCache[tuple[str, str], Summary] = LRUCache(CACHE_SIZE, _size)

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of the oldest rows that they cover."""
        owner, conversation = owner_of(owner_key), conversation_of(conversation_id)
        ids_in_order = (
            select(summaries.c.id)
            .outerjoin(
                messages,
                (messages.c.owner_key == summaries.c.owner_key)
                & (messages.c.id == summaries.c.first_id),
            )
            .where(summaries.c.owner_key == owner, summaries.c.conversation_id == conversation)
            .order_by(messages.c.sort_time, messages.c.sequence, summaries.c.number)
        )

        async def read_uncached(connection: AsyncConnection) -> list[Summary]:
            ids = list(await connection.scalars(ids_in_order))
            known = {name: self._cache[owner, name] for name in ids if (owner, name) in self._cache}
            if len(known) < len(ids):
                query = select(summaries.c.id, summaries.c.body).where(
                    summaries.c.owner_key == owner, summaries.c.id.in_(set(ids) - set(known))
                )
                rows = await connection.execute(query)
                known |= {row.id: _from_json(row.body) for row in rows}
            return [known[name] for name in ids]

        stored = await self._database.read(read_uncached, by_index=True)
        for summary in stored:
            if _size(summary) <= CACHE_SIZE:
                self._cache[owner, summary.id] = summary
        return stored

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, if the scope's state is as expected."""
        owner = owner_of(summary.owner_key)
        conversation = conversation_of(summary.conversation_id)

        async def add(connection: AsyncConnection) -> bool:
            if not await lock_owner(connection, owner):
                return False
            if not await _is_unchanged(connection, summary, expected):
                return False
            await connection.execute(_DELETE, {"in_owner": owner, "ids": list(replaces)})
            fields = asdict(summary)
            del fields["covers"]
            values = {
                "owner_key": owner,
                "id": summary.id,
                "conversation_id": conversation,
                "first_id": key(summary.message_ids[0]),
                "body": to_json(fields, "/summary"),
            }
            await connection.execute(insert(summaries).values(values))
            return True

        return await self._database.write(add, by_index=True)

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were."""
        owner = owner_of(owner_key)

        async def drop(connection: AsyncConnection) -> int:
            if not await lock_owner(connection, owner):
                return 0
            return await forget_rows(connection, owner, message_ids)

        return await self._database.write(drop, by_index=True)

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take a lease on summarising an owner's history; returns False if another holds it."""
        now = microseconds(self._clock())
        lease = insert(claims).values(
            owner_key=owner_of(owner_key), token=token, until=now + round(seconds * 1_000_000)
        )
        lease = lease.on_conflict_do_update(
            index_elements=[claims.c.owner_key],
            set_={"token": lease.excluded.token, "until": lease.excluded.until},
            where=(claims.c.until <= now) | (claims.c.token == token),
        )

        taken = lease.returning(claims.c.token)
        return await self._database.write(lambda c: c.scalar(taken)) is not None

    async def release(self, owner_key: str, token: str) -> None:
        """Give the lease back, if ``token`` still holds it."""
        owner = owner_of(owner_key)
        lease = delete(claims).where(claims.c.owner_key == owner, claims.c.token == token)
        await self._database.write(lambda connection: connection.execute(lease))


async def forget_rows(connection: AsyncConnection, owner: str, message_ids: Collection[str]) -> int:
    """Delete the summaries of a locked owner that cover any of these rows; returns how many."""
    query = select(summaries.c.id, summaries.c.body).where(summaries.c.owner_key == owner)
    stale = [
        row.id
        for row in await connection.execute(query)
        if not _from_json(row.body).covers.isdisjoint(message_ids)
    ]
    await connection.execute(_DELETE, {"in_owner": owner, "ids": stale})
    return len(stale)


async def _is_unchanged(connection: AsyncConnection, summary: Summary, expected: Expected) -> bool:
    """Return whether the scope is as expected, and no covered row is pruned or changed."""
    owner = owner_of(summary.owner_key)
    conversation = conversation_of(summary.conversation_id)
    stored = select(summaries.c.id).where(
        summaries.c.owner_key == owner, summaries.c.conversation_id == conversation
    )
    if set(await connection.scalars(stored)) != expected.summaries:
        return False
    statements, keys = scope(owner, conversation)
    last = {**keys, "row_id": key(expected.last_id)}
    if await connection.scalar(statements.rows_up_to, last) != expected.rows:
        return False
    ids = [key(row_id) for row_id in summary.message_ids]
    bodies = await read_bodies(connection, owner, ids, pruned=False)
    if len(bodies) < len(ids):
        return False
    return rows_fingerprint(json.loads(bodies[row_id]) for row_id in ids) == summary.fingerprint


def _from_json(body: str) -> Summary:
    """Read a summary as it was stored."""
    fields = json.loads(body)
    fields |= {name: parse_timestamp(fields[name]) for name in _TIMES}
    return Summary(**{**fields, "message_ids": tuple(fields["message_ids"])})


def _size(summary: Summary) -> int:
    return SUMMARY_SIZE + len(summary.message_ids)
