"""Deletes all that the tables of a history have of an owner."""

from typing import Final

from sqlalchemy import bindparam, delete
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import TAKE_NUMBERS
from service.adapters.sql.schema import (
    archive,
    claims,
    fallen,
    messages,
    owners,
    searched,
    summaries,
    term_counts,
)

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
