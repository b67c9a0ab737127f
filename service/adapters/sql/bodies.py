"""Rows by their ids, however many those are."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import BY_IDS, IDS_AT_ONCE

T = TypeVar("T")


async def read_bodies(
    connection: AsyncConnection, owner: str, ids: Sequence[str]
) -> dict[str, str]:
    """Return the bodies of the rows that there are, by their ids; all are keys of the tables."""
    bodies: dict[str, str] = {}
    for some in portions(ids):
        found = await connection.execute(BY_IDS, {"in_owner": owner, "ids": some})
        bodies |= {row.id: row.body for row in found}
    return bodies


def portions(ids: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield ids or numbers, as many at a time as one statement takes."""
    for start in range(0, len(ids), IDS_AT_ONCE):
        yield ids[start : start + IDS_AT_ONCE]
