"""Have rows found that were stored before there was an index of their terms, a few at a time."""

from typing import Final

from sqlalchemy import bindparam, delete, exists, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.rows import terms_in
from service.adapters.sql.engine import Database
from service.adapters.sql.schema import indexing, messages, searched
from service.adapters.sql.search_index import Found, index_rows
from service.adapters.sql.totals import lock_owner

#: Rows of a transaction: their owner's appends wait for it.
BATCH: Final = 500

_DONE: Final = select(indexing.c.owner_key, indexing.c.id)
#: Whose the next row is, behind one.
_NEXT: Final = (
    select(messages.c.owner_key)
    .where(
        tuple_(messages.c.owner_key, messages.c.id)
        > tuple_(bindparam("done_owner"), bindparam("done_id"))
    )
    .order_by(messages.c.owner_key, messages.c.id)
    .limit(1)
)
_INDEXED: Final = exists().where(
    searched.c.owner_key == messages.c.owner_key, searched.c.sequence == messages.c.sequence
)
#: The owner's next rows behind ``done_id``, and whether they are to be found and aren't yet.
_ROWS: Final = (
    select(
        messages.c.id,
        messages.c.conversation_id,
        messages.c.sort_time,
        messages.c.sequence,
        messages.c.body,
        ((messages.c.pruned == 0) & ~_INDEXED).label("lacking"),
    )
    .where(messages.c.owner_key == bindparam("in_owner"), messages.c.id > bindparam("done_id"))
    .order_by(messages.c.id)
    .limit(BATCH)
)


async def index_stored(database: Database) -> None:
    """Go through all rows; what has been done stays done where this is ended."""
    while await database.write(index_next):
        pass


async def is_indexed(connection: AsyncConnection) -> bool:
    """Tell whether all rows have been gone through."""
    return (await connection.execute(_DONE)).first() is None


async def index_next(connection: AsyncConnection) -> bool:
    """Index the next rows of an owner; returns whether there may be more."""
    done = (await connection.execute(_DONE.with_for_update())).first()
    if done is None:
        return False
    owner = await connection.scalar(_NEXT, {"done_owner": done.owner_key, "done_id": done.id})
    await connection.execute(delete(indexing))
    if owner is None:
        return False
    last = await _of_owner(connection, owner, done.id if owner == done.owner_key else "")
    await connection.execute(insert(indexing).values(owner_key=owner, id=last))
    return True


async def _of_owner(connection: AsyncConnection, owner: str, done_id: str) -> str:
    """Index an owner's next rows; returns the id of the last."""
    await lock_owner(connection, owner)
    rows = (await connection.execute(_ROWS, {"in_owner": owner, "done_id": done_id})).all()
    lacking = (
        Found(
            id=row.id,
            conversation_id=row.conversation_id,
            sort_time=row.sort_time,
            sequence=row.sequence,
            terms=terms_in(row.body),
        )
        for row in rows
        if row.lacking
    )
    await index_rows(connection, owner, lacking)
    return rows[-1].id if rows else done_id
