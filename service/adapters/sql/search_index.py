"""The search index in SQL: kept in step with the rows, completed after upgrades, and rebuilt."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from sqlalchemy import Row, bindparam, delete, exists, select, tuple_, update
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.engine import Database
from service.adapters.sql.queries import OWNED, batches, lock_owner
from service.adapters.sql.schema import (
    index_rules,
    indexing,
    insert,
    messages,
    searched,
    term_counts,
)
from service.adapters.store_records import IndexKeys, terms_in
from service.recall.terms import term_rules

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRow:
    """A row, as the table of messages has it, with the terms that find it."""

    id: str
    conversation_id: str | None
    sort_time: int
    sequence: int
    terms: Sequence[str]


# --- keeping the index in step with the rows -------------------------------------------------


def _add_rows(counted: Insert) -> Insert:
    return counted.on_conflict_do_update(
        index_elements=[term_counts.c.owner_key, term_counts.c.term],
        set_={"rows": term_counts.c.rows + counted.excluded.rows},
    )


#: Adds ``rows`` to the count of a term; a negative number subtracts.
_COUNT: Final = _add_rows(insert(term_counts))
#: Deletes entries by their rows' numbers, which lie between ``first`` and ``last``, and returns
#: their keys. The bounds keep a planner without statistics from reading all entries of an owner.
_UNINDEX: Final = (
    delete(searched)
    .where(
        searched.c.owner_key == bindparam("in_owner"),
        searched.c.sequence.in_(bindparam("numbers", expanding=True)),
        searched.c.sequence.between(bindparam("first"), bindparam("last")),
    )
    .returning(searched.c.terms)
)
#: Deletes the count of a term that no row has any more. Run term by term: for many terms at once, a
#: planner without statistics would read all counts of an owner.
_DELETE_COUNT: Final = delete(term_counts).where(
    term_counts.c.owner_key == bindparam("in_owner"),
    term_counts.c.term == bindparam("of_term"),
    term_counts.c.rows <= 0,
)


async def index_rows(connection: AsyncConnection, owner: str, rows: Iterable[IndexedRow]) -> None:
    """Add rows of a locked owner to the index."""
    entries = index_entries(owner, rows)
    if entries:
        await connection.execute(insert(searched).on_conflict_do_nothing(), entries)
        await _add_counts(connection, owner, count_keys(owner, (e["terms"] for e in entries)))


async def unindex_rows(connection: AsyncConnection, owner: str, numbers: Sequence[int]) -> None:
    """Remove rows of a locked owner, given by their sequence numbers, from the index."""
    removed: list[Sequence[int]] = []
    for batch in batches(sorted(numbers)):
        bounds = {"first": batch[0], "last": batch[-1]}
        values = {"in_owner": owner, "numbers": batch, **bounds}
        removed += await connection.scalars(_UNINDEX, values)
    counts = count_keys(owner, removed)
    await _add_counts(connection, owner, {term: -rows for term, rows in counts.items()})
    if counts:
        terms = [{"in_owner": owner, "of_term": term} for term in sorted(counts)]
        await connection.execute(_DELETE_COUNT, terms)


def index_entries(owner: str, rows: Iterable[IndexedRow]) -> list[dict[str, Any]]:
    """Return the entries of rows in the table `searched`; rows without terms have none."""
    keys = IndexKeys(owner)
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


def count_keys(owner: str, entries: Iterable[Sequence[int]]) -> Counter[int]:
    """Count the entries with each key; the key of all rows counts every entry."""
    every_row = IndexKeys(owner).every_row
    return Counter(key for keys in entries for key in (*keys, every_row))


async def _add_counts(connection: AsyncConnection, owner: str, rows: Mapping[int, int]) -> None:
    values = [{"owner_key": owner, "term": term, "rows": n} for term, n in sorted(rows.items())]
    if values:
        await connection.execute(_COUNT, values)


# --- completing and rebuilding the index, while workers serve --------------------------------

#: Rows in one transaction; appends of their owner wait for it.
BATCH_ROWS: Final = 500

#: The rules that the index was made by; locked, so that one process at a time continues a pass.
_RULES: Final = select(index_rules.c.rules)
_PASS: Final = select(indexing.c.owner_key, indexing.c.id, indexing.c.rules)
#: The owner of the next row after a position.
_NEXT_OWNER: Final = (
    select(messages.c.owner_key)
    .where(
        tuple_(messages.c.owner_key, messages.c.id)
        > tuple_(bindparam("done_owner"), bindparam("done_id"))
    )
    .order_by(messages.c.owner_key, messages.c.id)
    .limit(1)
)
#: The owner's next rows after ``done_id``, with their keys; null for rows that have no entry.
_NEXT_ROWS: Final = (
    select(
        messages.c.id,
        messages.c.conversation_id,
        messages.c.sort_time,
        messages.c.sequence,
        messages.c.pruned,
        messages.c.body,
        searched.c.terms,
    )
    .join(
        searched,
        (searched.c.owner_key == messages.c.owner_key)
        & (searched.c.sequence == messages.c.sequence),
        isouter=True,
    )
    .where(OWNED, messages.c.id > bindparam("done_id"))
    .order_by(messages.c.id)
    .limit(BATCH_ROWS)
)


async def complete_index(database: Database) -> None:
    """Index the rows that were stored before there was an index; an ended pass continues."""
    await database.write(_note_rules_of_empty_index)
    while await database.write(index_next):
        pass


async def rebuild_index(database: Database) -> int:
    """Rebuild all entries that other rules have made; returns how many changed.

    An ended pass continues where it was, unless the rules have changed again.
    """
    await complete_index(database)
    changed = 0
    while (count := await database.write(reindex_next)) is not None:
        changed += count
    return changed


async def is_complete(connection: AsyncConnection) -> bool:
    """Return whether all rows from before there was an index have been indexed."""
    position = (await connection.execute(_PASS)).first()
    return position is None or position.rules is not None


async def is_current(connection: AsyncConnection) -> bool:
    """Return whether all entries were made by the current rules."""
    position = (await connection.execute(_PASS)).first()
    return position is None and await connection.scalar(_RULES) == term_rules()


async def warn_if_outdated(database: Database) -> None:
    """Log a warning if entries were made by other rules than today's: searches find less."""
    if not await database.read(is_current):
        log.warning("store.terms_outdated", command="ctxb db reindex")


async def index_next(connection: AsyncConnection) -> bool:
    """Index an owner's next rows that have no entry; returns whether there may be more."""
    await connection.execute(_RULES.with_for_update())
    position = (await connection.execute(_PASS)).first()
    if position is None or position.rules is not None:
        return False
    if await _continue_pass(connection, position) is not None:
        return True
    await connection.execute(
        update(index_rules).where(index_rules.c.rules == "").values(rules=term_rules())
    )
    return False


async def reindex_next(connection: AsyncConnection) -> int | None:
    """Rebuild the entries of an owner's next rows; returns how many changed, None at the end."""
    rules = term_rules()
    made_by = await connection.scalar(_RULES.with_for_update())
    position = (await connection.execute(_PASS)).first()
    if position is None and made_by == rules:
        return None
    if position is None or position.rules != rules:
        await connection.execute(delete(indexing))
        await connection.execute(insert(indexing).values(owner_key="", id="", rules=rules))
        return 0
    changed = await _continue_pass(connection, position)
    if changed is None:
        await connection.execute(update(index_rules).values(rules=rules))
    return changed


async def _note_rules_of_empty_index(connection: AsyncConnection) -> None:
    """Note the current rules if the index is empty, so that no other rules made it."""
    empty = ~exists().where(searched.c.number.is_not(None))
    other = index_rules.c.rules != term_rules()
    await connection.execute(update(index_rules).where(empty, other).values(rules=term_rules()))


async def _continue_pass(
    connection: AsyncConnection, position: Row[str, str, str | None]
) -> int | None:
    """Index the next rows of a pass; returns how many entries changed, None at the end."""
    after = {"done_owner": position.owner_key, "done_id": position.id}
    owner = await connection.scalar(_NEXT_OWNER, after)
    if owner is None:
        await connection.execute(delete(indexing))
        return None
    done_id = position.id if owner == position.owner_key else ""
    await lock_owner(connection, owner)
    rows = (await connection.execute(_NEXT_ROWS, {"in_owner": owner, "done_id": done_id})).all()
    changed = await _index_batch(connection, owner, rows, rebuild=position.rules is not None)
    last_id = rows[-1].id if rows else done_id
    await connection.execute(update(indexing).values(owner_key=owner, id=last_id))
    return changed


async def _index_batch(
    connection: AsyncConnection,
    owner: str,
    rows: Sequence[Row[*tuple[Any, ...]]],
    *,
    rebuild: bool,
) -> int:
    """Index rows without an entry, and on a rebuild those whose keys differ; returns how many."""
    stored = {row.sequence: row.terms for row in rows}
    shown = {
        row.sequence: IndexedRow(
            id=row.id,
            conversation_id=row.conversation_id,
            sort_time=row.sort_time,
            sequence=row.sequence,
            terms=terms_in(row.body),
        )
        for row in rows
        if not row.pruned and (rebuild or row.terms is None)
    }
    current = {entry["sequence"]: entry["terms"] for entry in index_entries(owner, shown.values())}
    changed = [number for number in shown if current.get(number) != _sorted(stored[number])]
    await unindex_rows(connection, owner, [n for n in changed if stored[n] is not None])
    await index_rows(connection, owner, (shown[number] for number in changed))
    return len(changed)


def _sorted(keys: Sequence[int] | None) -> list[int] | None:
    return None if keys is None else sorted(keys)
