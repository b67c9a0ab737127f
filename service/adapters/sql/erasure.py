"""Deletes all that the tables of a history have of an owner."""

from typing import Final

from sqlalchemy import bindparam, delete
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.schema import archive, claims, fallen, messages, owners, summaries

#: The owner's own row first: its lock keeps appends waiting until all is gone.
_TABLES: Final = (owners, fallen, archive, summaries, claims, messages)
#: Delete what is ``in_owner``'s, a statement a table.
ERASE: Final = tuple(
    delete(table).where(table.c.owner_key == bindparam("in_owner")) for table in _TABLES
)


async def erase_owner(connection: AsyncConnection, owner: str) -> int:
    """Delete an owner, given as a key of the tables; returns how many rows of history there were.

    The profile is no part of it.
    """
    erased = 0
    for statement in ERASE:
        erased = (await connection.execute(statement, {"in_owner": owner})).rowcount
    return erased
