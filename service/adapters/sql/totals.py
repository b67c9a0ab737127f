"""An owner's lock, and the running totals that it keeps right where rows come or are pruned."""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import LOCK_OWNER, scope


class Changed(NamedTuple):
    """A row that has come, or was hidden or shown, as the table has it."""

    conversation_id: str | None
    sort_time: int
    sequence: int
    id: str


async def lock_owner(connection: AsyncConnection, owner: str) -> bool:
    """Have other changes of an owner wait until this transaction ends; the first thing it does.

    Returns False where the owner has no rows, and nothing is locked.
    """
    return await connection.scalar(LOCK_OWNER, {"in_owner": owner}) is not None


async def recount(connection: AsyncConnection, owner: str, changed: Iterable[Changed]) -> int:
    """Bring the totals up to date behind rows that have changed; returns how many those are."""
    places: dict[str | None, list[tuple[int, int]]] = {}
    for row in changed:
        for name in {None, row.conversation_id}:
            places.setdefault(name, []).append((row.sort_time, row.sequence))
    for name, touched in places.items():
        of = scope(owner, name)
        sort_time, sequence = min(touched)
        first = {"from_time": sort_time, "from_sequence": sequence}
        await connection.execute(of.statements.recount, {**of.keys, **first})
    return len(places.get(None, ()))
