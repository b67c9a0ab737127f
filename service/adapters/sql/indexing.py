"""Have stored rows found by the terms of today's rules, a few at a time, while workers serve."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import structlog
from sqlalchemy import Row, bindparam, delete, exists, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.engine import Database
from service.adapters.sql.schema import index_rules, indexing, messages, searched
from service.adapters.sql.search_index import Found, index_rows, indexed, lock_owner, unindex_rows
from service.adapters.store_records import terms_in
from service.recall.terms import term_rules

log = structlog.get_logger(__name__)

#: Rows of a transaction: their owner's appends wait for it.
BATCH: Final = 500

#: The rules by which the index was made; locked, one process goes on with a pass at a time.
_RULES: Final = select(index_rules.c.rules)
_DONE: Final = select(indexing.c.owner_key, indexing.c.id, indexing.c.rules)
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
#: The owner's next rows behind ``done_id``, with the terms that they are found by; none of rows
#: that are pruned, and of those that nothing is found by.
_ROWS: Final = (
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
    .where(messages.c.owner_key == bindparam("in_owner"), messages.c.id > bindparam("done_id"))
    .order_by(messages.c.id)
    .limit(BATCH)
)


async def index_stored(database: Database) -> None:
    """Index what was stored before there was an index; what has been done stays done."""
    await database.write(_settle)
    while await database.write(index_next):
        pass


async def reindex_stored(database: Database) -> int:
    """Make the terms of all rows anew that other rules have made; returns how many changed.

    A pass that was ended goes on where it was, unless the rules have changed again.
    """
    await index_stored(database)
    changed = 0
    while (some := await database.write(reindex_next)) is not None:
        changed += some
    return changed


async def is_indexed(connection: AsyncConnection) -> bool:
    """Tell whether all rows that were stored before there was an index have been put into it."""
    done = (await connection.execute(_DONE)).first()
    return done is None or done.rules is not None


async def is_current(connection: AsyncConnection) -> bool:
    """Tell whether all terms were made by today's rules."""
    under_way = (await connection.execute(_DONE)).first()
    return under_way is None and await connection.scalar(_RULES) == term_rules()


async def warn_of_terms(database: Database) -> None:
    """Log where rows are found by terms of other rules than today's, and so less well."""
    if not await database.read(is_current):
        log.warning("store.terms_outdated", command="ctxb db reindex")


async def index_next(connection: AsyncConnection) -> bool:
    """Index the next rows of an owner that lack it; returns whether there may be more."""
    await connection.execute(_RULES.with_for_update())
    done = (await connection.execute(_DONE)).first()
    if done is None or done.rules is not None:
        return False
    if await _pass_on(connection, done) is not None:
        return True
    await connection.execute(
        update(index_rules).where(index_rules.c.rules == "").values(rules=term_rules())
    )
    return False


async def reindex_next(connection: AsyncConnection) -> int | None:
    """Make the terms of an owner's next rows anew; returns how many changed, None at the end."""
    rules = term_rules()
    known = await connection.scalar(_RULES.with_for_update())
    done = (await connection.execute(_DONE)).first()
    if done is None and known == rules:
        return None
    if done is None or done.rules != rules:
        await connection.execute(delete(indexing))
        await connection.execute(insert(indexing).values(owner_key="", id="", rules=rules))
        return 0
    changed = await _pass_on(connection, done)
    if changed is None:
        await connection.execute(update(index_rules).values(rules=rules))
    return changed


async def _settle(connection: AsyncConnection) -> None:
    """Note today's rules where there is nothing yet that others could have made."""
    nothing = ~exists().where(searched.c.number.is_not(None))
    other = index_rules.c.rules != term_rules()
    await connection.execute(update(index_rules).where(nothing, other).values(rules=term_rules()))


# --- a pass ----------------------------------------------------------------------------------


class _Passed(NamedTuple):
    """What a step of a pass has come to: its last row, and how many rows it has changed."""

    id: str
    changed: int


async def _pass_on(connection: AsyncConnection, done: Row[str, str, str | None]) -> int | None:
    """Go on with a pass; returns how many rows changed, and None where it has ended."""
    behind = {"done_owner": done.owner_key, "done_id": done.id}
    owner = await connection.scalar(_NEXT, behind)
    if owner is None:
        await connection.execute(delete(indexing))
        return None
    first = done.id if owner == done.owner_key else ""
    passed = await _of_owner(connection, owner, first, anew=done.rules is not None)
    await connection.execute(update(indexing).values(owner_key=owner, id=passed.id))
    return passed.changed


async def _of_owner(
    connection: AsyncConnection, owner: str, done_id: str, *, anew: bool
) -> _Passed:
    """Index an owner's next rows: those that lack it, or all whose terms are others now."""
    await lock_owner(connection, owner)
    rows = (await connection.execute(_ROWS, {"in_owner": owner, "done_id": done_id})).all()
    known = {row.sequence: row.terms for row in rows}
    shown = [row for row in rows if not row.pruned and (anew or row.terms is None)]
    found = {row.sequence: _found(row) for row in shown}
    now = {each["sequence"]: each["terms"] for each in indexed(owner, found.values())}
    other = [number for number in found if now.get(number) != _sorted(known[number])]
    await unindex_rows(connection, owner, [n for n in other if known[n] is not None])
    await index_rows(connection, owner, (found[number] for number in other))
    return _Passed(rows[-1].id if rows else done_id, len(other))


def _found(row: Row[*tuple[Any, ...]]) -> Found:
    return Found(
        id=row.id,
        conversation_id=row.conversation_id,
        sort_time=row.sort_time,
        sequence=row.sequence,
        terms=terms_in(row.body),
    )


def _sorted(terms: Sequence[int] | None) -> list[int] | None:
    return None if terms is None else sorted(terms)
