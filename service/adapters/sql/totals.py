"""The running totals of a history, kept right where rows come and where they are pruned."""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import scope

#: The conversation, sort time and sequence number of each of some rows.
Places = Iterable[tuple[str | None, int, int]]


async def recount(connection: AsyncConnection, owner: str, changed: Places) -> int:
    """Bring the totals up to date behind rows that have changed; returns how many those are."""
    places: dict[str | None, list[tuple[int, int]]] = {}
    for conversation, sort_time, sequence in changed:
        for name in {None, conversation}:
            places.setdefault(name, []).append((sort_time, sequence))
    for name, touched in places.items():
        of = scope(owner, name)
        sort_time, sequence = min(touched)
        first = {"from_time": sort_time, "from_sequence": sequence}
        await connection.execute(of.statements.recount, {**of.keys, **first})
    return len(places.get(None, ()))
