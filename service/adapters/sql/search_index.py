"""An owner's lock, and the running totals that it keeps right where rows come or are pruned."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, delete
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.queries import LOCK_OWNER, portions, scope
from service.adapters.sql.schema import insert, searched, term_counts
from service.adapters.store_records import TermKeys


def _count() -> Insert:
    counted = insert(term_counts)
    return counted.on_conflict_do_update(
        index_elements=[term_counts.c.owner_key, term_counts.c.term],
        set_={"rows": term_counts.c.rows + counted.excluded.rows},
    )


#: Add ``rows`` to how many have a term; fewer than none take some away.
COUNT: Final = _count()
#: Take rows out by their numbers, the ``first`` to the ``last``; returns their terms. A planner
#: that knows nothing of an owner reads the rows between these, not all there are.
UNINDEX: Final = (
    delete(searched)
    .where(
        searched.c.owner_key == bindparam("in_owner"),
        searched.c.sequence.in_(bindparam("numbers", expanding=True)),
        searched.c.sequence.between(bindparam("first"), bindparam("last")),
    )
    .returning(searched.c.terms)
)
#: Forget a term that no row has any more. One by one: of many at once, a planner that knows nothing
#: of an owner reads all that there are.
UNCOUNT: Final = delete(term_counts).where(
    term_counts.c.owner_key == bindparam("in_owner"),
    term_counts.c.term == bindparam("of_term"),
    term_counts.c.rows <= 0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row, as the table of messages has it, and what it is found by."""

    id: str
    conversation_id: str | None
    sort_time: int
    sequence: int
    terms: Sequence[str]


async def index_rows(connection: AsyncConnection, owner: str, rows: Iterable[Found]) -> None:
    """Have rows of a locked owner found by their terms."""
    values = indexed(owner, rows)
    if values:
        await connection.execute(insert(searched).on_conflict_do_nothing(), values)
        await _counted(connection, owner, tallied(owner, (each["terms"] for each in values)))


async def unindex_rows(connection: AsyncConnection, owner: str, numbers: Sequence[int]) -> None:
    """Have rows of a locked owner, by their sequence numbers, found no more."""
    gone: list[Sequence[int]] = []
    for some in portions(sorted(numbers)):
        bounds = {"first": some[0], "last": some[-1]}
        chosen = {"in_owner": owner, "numbers": some, **bounds}
        gone += await connection.scalars(UNINDEX, chosen)
    taken = tallied(owner, gone)
    await _counted(connection, owner, {term: -rows for term, rows in taken.items()})
    if taken:
        forgotten = [{"in_owner": owner, "of_term": term} for term in sorted(taken)]
        await connection.execute(UNCOUNT, forgotten)


def indexed(owner: str, rows: Iterable[Found]) -> list[dict[str, Any]]:
    """Return what the table has of rows; none of those that nothing is found by."""
    keys = TermKeys(owner)
    return [
        {
            "owner_key": owner,
            "sequence": row.sequence,
            "sort_time": row.sort_time,
            "id": row.id,
            "terms": keys.of_row(row.terms, row.conversation_id),
        }
        for row in rows
        if row.terms
    ]


def tallied(owner: str, terms: Iterable[Sequence[int]]) -> Counter[int]:
    """Return how many of some rows, given with their terms, have each; and how many they are."""
    row = TermKeys(owner).row
    return Counter(term for each in terms for term in (*each, row))


async def _counted(connection: AsyncConnection, owner: str, rows: Mapping[int, int]) -> None:
    values = [{"owner_key": owner, "term": term, "rows": n} for term, n in sorted(rows.items())]
    if values:
        await connection.execute(COUNT, values)


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
