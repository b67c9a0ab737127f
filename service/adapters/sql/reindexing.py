"""Completes the search index after upgrades, and rebuilds it, while workers serve."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, bindparam, delete, exists, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.engine import Database
from service.adapters.sql.queries import (
    CHANGED,
    OWNED,
    ChangedRow,
    index_entries,
    index_rows,
    lock_owner,
    unindex_rows,
)
from service.adapters.sql.schema import index_rules, indexing, insert, messages, searched
from service.adapters.store_records import terms_in
from service.recall.terms import term_rules

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
    select(*CHANGED, messages.c.pruned, messages.c.body, searched.c.terms)
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
    """Index the rows that were stored before there was an index; an ended pass continues.

    Mostly there is nothing to do, and nothing is written, which would wait for another process.
    """
    if await database.read(_is_settled):
        return
    await database.write(_note_rules_of_empty_index)
    while await database.write(index_next) is not None:
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


async def index_next(connection: AsyncConnection) -> int | None:
    """Index an owner's next rows from before the index; returns how many, None at the end."""
    await connection.execute(_RULES.with_for_update())
    return None if await is_complete(connection) else await _continue_pass(connection)


async def reindex_next(connection: AsyncConnection) -> int | None:
    """Rebuild the entries of an owner's next rows; returns how many changed, None at the end."""
    rules = term_rules()
    await connection.execute(_RULES.with_for_update())
    if await is_current(connection):
        return None
    position = (await connection.execute(_PASS)).first()
    if position is None or position.rules != rules:
        await connection.execute(delete(indexing))
        await connection.execute(insert(indexing).values(owner_key="", id="", rules=rules))
        return 0
    return await _continue_pass(connection)


_HAS_ENTRIES: Final = exists().where(searched.c.number.is_not(None))


async def _is_settled(connection: AsyncConnection) -> bool:
    """Return whether all rows are indexed, and the rules are noted if there are none."""
    if not await is_complete(connection):
        return False
    is_noted = await connection.scalar(_RULES) == term_rules()
    return is_noted or bool(await connection.scalar(select(_HAS_ENTRIES)))


async def _note_rules_of_empty_index(connection: AsyncConnection) -> None:
    """Note the current rules if the index is empty, so that no other rules made it."""
    other = index_rules.c.rules != term_rules()
    noted = update(index_rules).where(~_HAS_ENTRIES, other).values(rules=term_rules())
    await connection.execute(noted)


async def _continue_pass(connection: AsyncConnection) -> int | None:
    """Index the next rows of a pass; returns how many entries changed, None at the end."""
    position = (await connection.execute(_PASS)).one()
    after = {"done_owner": position.owner_key, "done_id": position.id}
    owner = await connection.scalar(_NEXT_OWNER, after)
    if owner is None:
        await connection.execute(delete(indexing))
        await connection.execute(update(index_rules).values(rules=term_rules()))
        return None
    done_id = position.id if owner == position.owner_key else ""
    await lock_owner(connection, owner)
    rows = (await connection.execute(_NEXT_ROWS, {"in_owner": owner, "done_id": done_id})).all()
    last_id = rows[-1].id if rows else done_id
    await connection.execute(update(indexing).values(owner_key=owner, id=last_id))
    return await _index_batch(connection, owner, rows)


async def _index_batch(
    connection: AsyncConnection, owner: str, rows: Sequence[Row[*tuple[Any, ...]]]
) -> int:
    """Index the shown rows whose keys are not those of their terms; returns how many."""
    stored = {row.sequence: row.terms and sorted(row.terms) for row in rows}
    shown = {
        row.sequence: (ChangedRow(*row[: len(CHANGED)]), terms_in(row.body))
        for row in rows
        if not row.pruned
    }
    current = {entry["sequence"]: entry["terms"] for entry in index_entries(owner, shown.values())}
    changed = [number for number in shown if current.get(number) != stored[number]]
    await unindex_rows(connection, owner, [n for n in changed if stored[n] is not None])
    await index_rows(connection, owner, (shown[number] for number in changed))
    return len(changed)
