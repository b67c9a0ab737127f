"""Deletes rows from a history in SQL: an owner's all, or those that have expired."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import BigInteger, bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import OWNED, batches, take_numbers
from service.adapters.sql.schema import (
    archive,
    claims,
    fallen,
    from_key,
    messages,
    owners,
    searched,
    summaries,
    term_counts,
)
from service.adapters.sql.search_index import unindex_rows
from service.adapters.sql.summary_store import forget_rows

_OLD: Final = messages.c.sort_time < bindparam("until")
_OLD_COPIES: Final = (
    select(archive.c.number)
    .where(archive.c.archived_at < bindparam("until"))
    .order_by(archive.c.archived_at)
)
_LIMIT: Final = bindparam("limit", type_=BigInteger)

#: The owner of the oldest of all rows, if that row is from before ``until``.
_NEXT_OWNER: Final = (
    select(messages.c.owner_key).where(_OLD).order_by(messages.c.sort_time).limit(1)
)
#: The ids and numbers of an owner's oldest rows from before ``until``, at most ``limit``.
_EXPIRED: Final = (
    select(messages.c.id, messages.c.sequence)
    .where(OWNED, _OLD)
    .order_by(messages.c.sort_time, messages.c.sequence)
    .limit(_LIMIT)
)
#: Delete the rows with the ``ids``, and their flags.
_DELETE_ROWS: Final = tuple(
    delete(table).where(
        table.c.owner_key == bindparam("in_owner"),
        table.c.id.in_(bindparam("ids", expanding=True)),
    )
    for table in (messages, fallen)
)
#: Any row that an owner still has. Ordered, or SQLite would scan a database in which most rows are
#: one owner's.
_REMAINING: Final = (
    select(messages.c.sort_time).where(OWNED).order_by(messages.c.sort_time).limit(1)
)
#: Deletes an owner, whose history then starts again from the first number.
_DELETE_OWNER: Final = delete(owners).where(owners.c.owner_key == bindparam("in_owner"))
#: An archived copy of any owner from before ``until``.
_EXPIRED_COPY: Final = _OLD_COPIES.limit(1)
#: Deletes the oldest copies from before ``until``, at most ``limit``; copies that another
#: transaction has locked are left for the next time.
_DELETE_COPIES: Final = delete(archive).where(
    archive.c.number.in_(_OLD_COPIES.limit(_LIMIT).with_for_update(skip_locked=True))
)
#: Delete all that an owner has, the rows of history last.
_ERASE: Final = tuple(
    delete(table).where(table.c.owner_key == bindparam("in_owner"))
    for table in (owners, fallen, archive, summaries, claims, searched, term_counts, messages)
)


async def erase_owner(connection: AsyncConnection, owner: str) -> int:
    """Delete an owner's history, flags and summaries; returns how many rows of history there were.

    The profile stays.
    """
    # locks the owner, also one without rows: appends wait
    await take_numbers(connection, owner)
    erased = 0
    for statement in _ERASE:
        erased = (await connection.execute(statement, {"in_owner": owner})).rowcount
    return erased


async def next_owner(connection: AsyncConnection, until: int) -> str | None:
    """Return the owner of the oldest row from before a moment, in microseconds since 1970."""
    return await connection.scalar(_NEXT_OWNER, {"until": until})


async def expire_rows(connection: AsyncConnection, owner: str, until: int, limit: int) -> int:
    """Delete an owner's oldest rows from before a moment, at most ``limit``; returns how many.

    Their flags and the summaries that cover any of them are deleted too. The totals of the other
    rows stay as they are: see `schema.messages`.
    """
    # from here on no append can put a row before those to delete, also if the owner is deleted
    await take_numbers(connection, owner)
    oldest = {"in_owner": owner, "until": until, "limit": limit}
    expired = (await connection.execute(_EXPIRED, oldest)).all()
    ids: Sequence[str] = [row.id for row in expired]
    await unindex_rows(connection, owner, [row.sequence for row in expired])
    await forget_rows(connection, owner, {from_key(row_id) for row_id in ids})
    for batch in batches(ids):
        for statement in _DELETE_ROWS:
            await connection.execute(statement, {"in_owner": owner, "ids": batch})
    if await connection.scalar(_REMAINING, {"in_owner": owner}) is None:
        await connection.execute(_DELETE_OWNER, {"in_owner": owner})
    return len(ids)


async def has_expired_copies(connection: AsyncConnection, until: int) -> bool:
    """Return whether any owner's archive has a copy from before a moment."""
    return await connection.scalar(_EXPIRED_COPY, {"until": until}) is not None


async def expire_copies(connection: AsyncConnection, until: int, limit: int) -> int:
    """Delete the oldest copies of any owners, at most ``limit``; returns how many."""
    deleted = await connection.execute(_DELETE_COPIES, {"until": until, "limit": limit})
    return deleted.rowcount
