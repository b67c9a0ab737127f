"""Deletes all that the tables of a history have of an owner."""

from typing import Final

from sqlalchemy import BigInteger, bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import TAKE_NUMBERS, portions
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
from service.adapters.sql.summaries import forget_rows

_OWNED: Final = messages.c.owner_key == bindparam("in_owner")
_OLD: Final = messages.c.sort_time < bindparam("until")
_LIMIT: Final = bindparam("limit", type_=BigInteger)

#: Whose the oldest of all rows is, where that is from before ``until``.
NEXT_OWNER: Final = select(messages.c.owner_key).where(_OLD).order_by(messages.c.sort_time).limit(1)
#: The ids and numbers of an owner's oldest rows from before ``until``, ``limit`` at most.
EXPIRED: Final = (
    select(messages.c.id, messages.c.sequence)
    .where(_OWNED, _OLD)
    .order_by(messages.c.sort_time, messages.c.sequence)
    .limit(_LIMIT)
)
#: Delete the rows, and the marks on rows, with the ``ids``.
DELETE: Final = tuple(
    delete(table).where(
        table.c.owner_key == bindparam("in_owner"),
        table.c.id.in_(bindparam("ids", expanding=True)),
    )
    for table in (messages, fallen)
)
#: A row that an owner has left. In an order: without one, SQLite would look at all rows of a
#: database in which most are one owner's.
LEFT: Final = select(messages.c.sort_time).where(_OWNED).order_by(messages.c.sort_time).limit(1)
#: Delete an owner, whose history begins anew then.
DELETE_OWNER: Final = delete(owners).where(owners.c.owner_key == bindparam("in_owner"))
#: An archived copy from before ``until``, if there is one.
EXPIRED_COPY: Final = (
    select(archive.c.number)
    .where(archive.c.archived_at < bindparam("until"))
    .order_by(archive.c.archived_at)
    .limit(1)
)
#: Delete the oldest copies from before ``until``, ``limit`` at most; those that another transaction
#: holds are left for the next time.
DELETE_COPIES: Final = delete(archive).where(
    archive.c.number.in_(
        select(archive.c.number)
        .where(archive.c.archived_at < bindparam("until"))
        .order_by(archive.c.archived_at)
        .limit(_LIMIT)
        .with_for_update(skip_locked=True)
    )
)


async def next_owner(connection: AsyncConnection, until: int) -> str | None:
    """Return whose the oldest row is that is from before a moment, in microseconds since 1970."""
    return await connection.scalar(NEXT_OWNER, {"until": until})


async def expire_rows(connection: AsyncConnection, owner: str, until: int, limit: int) -> int:
    """Delete at most so many of an owner's oldest rows; returns how many.

    They go with their marks and the summaries that cover any of them. The totals of what is left
    stay as they are: see `schema.messages`.
    """
    # from here on no append can put a row before those that go, also where the owner is gone
    await connection.execute(TAKE_NUMBERS, {"owner_key": owner, "last_sequence": 0})
    oldest = {"in_owner": owner, "until": until, "limit": limit}
    expired = (await connection.execute(EXPIRED, oldest)).all()
    ids = [row.id for row in expired]
    await unindex_rows(connection, owner, [row.sequence for row in expired])
    await forget_rows(connection, owner, {from_key(name) for name in ids})
    for some in portions(ids):
        for statement in DELETE:
            await connection.execute(statement, {"in_owner": owner, "ids": some})
    if await connection.scalar(LEFT, {"in_owner": owner}) is None:
        await connection.execute(DELETE_OWNER, {"in_owner": owner})
    return len(ids)


async def has_expired_copies(connection: AsyncConnection, until: int) -> bool:
    """Return whether any owner's archive has a copy from before a moment."""
    return await connection.scalar(EXPIRED_COPY, {"until": until}) is not None


async def expire_copies(connection: AsyncConnection, until: int, limit: int) -> int:
    """Delete at most so many of the oldest copies, of any owners; returns how many."""
    gone = await connection.execute(DELETE_COPIES, {"until": until, "limit": limit})
    return gone.rowcount


_TABLES: Final = (owners, fallen, archive, summaries, claims, searched, term_counts, messages)
#: Delete what is ``in_owner``'s, a statement a table.
ERASE: Final = tuple(
    delete(table).where(table.c.owner_key == bindparam("in_owner")) for table in _TABLES
)


async def erase_owner(connection: AsyncConnection, owner: str) -> int:
    """Delete an owner, given as a key of the tables; returns how many rows of history there were.

    The profile is no part of it.
    """
    # to take no numbers locks the owner, also where there is none yet: appends wait
    await connection.execute(TAKE_NUMBERS, {"owner_key": owner, "last_sequence": 0})
    erased = 0
    for statement in ERASE:
        erased = (await connection.execute(statement, {"in_owner": owner})).rowcount
    return erased
