"""Statements on an owner's rows, and what keeps their totals and the search index in step.

Owners, conversations and ids are keys of the tables, see `key`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Delete,
    Executable,
    FromClause,
    Row,
    ScalarSelect,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    delete,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.rows import fix_surrogates
from service.adapters.sql.schema import (
    archive,
    claims,
    fallen,
    insert,
    messages,
    owners,
    searched,
    summaries,
    term_counts,
    vector_queue,
    vectors,
)
from service.adapters.store_records import IndexKeys, checked_owner

T = TypeVar("T")

#: Values of ``beyond`` and ``limit`` that bound nothing.
ALL_TOKENS: Final = -1
ALL_ROWS: Final = 2**63 - 1
#: Ids in one statement; databases limit the number of parameters.
BATCH_SIZE: Final = 500


def owned(table: FromClause) -> ColumnElement[bool]:
    """Return the condition that rows of a table are the owner's ``in_owner``."""
    return table.c.owner_key == bindparam("in_owner")


def delete_by_ids(table: Table) -> Delete:
    """Build the deletion of an owner's rows with the ``ids``."""
    return delete(table).where(owned(table), table.c.id.in_(bindparam("ids", expanding=True)))


#: Conditions: an owner's rows, those of one conversation, and those with the ``ids``.
OWNED: Final = owned(messages)
IN_CONVERSATION: Final = messages.c.conversation_id == bindparam("in_conversation")
WITH_IDS: Final = and_(OWNED, messages.c.id.in_(bindparam("ids", expanding=True)))
#: The order of a history.
POSITION: Final = (messages.c.sort_time, messages.c.sequence)
LIMIT: Final = bindparam("limit", type_=BigInteger)

_BY_IDS: Final = select(messages.c.id, messages.c.body).where(WITH_IDS)
_SHOWN_BY_IDS: Final = _BY_IDS.where(messages.c.pruned != literal(1))
#: Locks an owner, so that other changes wait until the transaction ends; returns nothing if there
#: is no such owner. SQLite's writers are locked already.
_LOCK_OWNER: Final = select(owners.c.last_sequence).where(owned(owners)).with_for_update()


#: The row with the id ``row_id``, its conversation and its position, unless it is pruned; by the
#: key of the table, whatever a planner knows of conversations.
SHOWN_ROW: Final = select(messages.c.conversation_id, *POSITION, messages.c.body).where(
    OWNED, messages.c.id == bindparam("row_id"), messages.c.pruned != literal(1)
)


class ChangedRow(NamedTuple):
    """A row that was added, hidden or shown: its columns `CHANGED`."""

    conversation_id: str | None
    sort_time: int
    sequence: int
    id: str


#: The columns that statements return of the rows that they change.
CHANGED: Final = (messages.c.conversation_id, *POSITION, messages.c.id)
#: Inserts the rows that are new, and returns them.
ADD_ROWS: Final = insert(messages).on_conflict_do_nothing().returning(*CHANGED)


# --- keys of the tables ----------------------------------------------------------------------

_ESCAPED: Final = re.compile(r"\\([\\0])")


def key(name: str) -> str:
    """Return text for a key column: NUL, which Postgres refuses, is escaped."""
    return name.replace("\\", "\\\\").replace("\0", "\\0")


def from_key(text: str) -> str:
    """Return the text that `key` was given."""
    return _ESCAPED.sub(lambda match: "\0" if match[1] == "0" else "\\", text)


def owner_of(owner_key: str) -> str:
    """Return the key of an owner; raises `InvalidRequestError` for one that can't be stored."""
    return key(checked_owner(owner_key))


def conversation_of(conversation_id: str | None) -> str | None:
    """Return the key of a conversation, None for all of an owner's."""
    return None if conversation_id is None else key(fix_surrogates(conversation_id))


# --- flags on rows ---------------------------------------------------------------------------

#: Sets ``pruned`` to ``now_pruned`` on those of the ``ids`` that differ, and returns them.
SET_PRUNED: Final = (
    update(messages)
    .where(WITH_IDS, messages.c.pruned != bindparam("now_pruned"))
    .values(pruned=bindparam("now_pruned"))
    .returning(*CHANGED)
)
#: Flags those of the ``ids`` as fallen that are stored, not pruned and not flagged yet, and returns
#: them. With ``pruned = 0``, SQLite would read all of an owner by an index that has ``pruned``.
FLAG_FALLEN: Final = (
    insert(fallen)
    .from_select(
        ["owner_key", "id"],
        select(messages.c.owner_key, messages.c.id).where(
            WITH_IDS, messages.c.pruned != literal(1)
        ),
    )
    .on_conflict_do_nothing()
    .returning(fallen.c.id)
)
#: The newest ``limit`` copies in an archive, newest first.
ARCHIVED: Final = (
    select(archive).where(owned(archive)).order_by(archive.c.number.desc()).limit(LIMIT)
)
#: An owner's pruned rows, rows that once fell out, archived copies, and summaries.
COUNTS: Final = select(
    *(
        select(func.count()).where(condition).scalar_subquery().label(name)
        for name, condition in (
            ("pruned", and_(OWNED, messages.c.pruned == literal(1))),
            *((table.name, owned(table)) for table in (fallen, archive, summaries)),
        )
    )
)

# --- deleting --------------------------------------------------------------------------------

_OLD: Final = messages.c.sort_time < bindparam("until")

#: The owner of the oldest of all rows, if that row is from before ``until``.
EXPIRED_OWNER: Final = (
    select(messages.c.owner_key).where(_OLD).order_by(messages.c.sort_time).limit(1)
)
#: The ids and numbers of an owner's oldest rows from before ``until``, at most ``limit``.
EXPIRED: Final = (
    select(messages.c.id, messages.c.sequence).where(OWNED, _OLD).order_by(*POSITION).limit(LIMIT)
)
#: Delete the rows with the ``ids``, their flags and vectors.
DELETE_ROWS: Final = (delete_by_ids(messages), delete_by_ids(fallen), delete_by_ids(vectors))
#: Any row that an owner still has. Ordered, or SQLite would scan a database in which most rows are
#: one owner's.
REMAINING: Final = select(messages.c.sort_time).where(OWNED).order_by(messages.c.sort_time).limit(1)
#: Delete an owner, whose history then starts again from the first number.
DELETE_OWNER: Final = tuple(delete(table).where(owned(table)) for table in (owners, vector_queue))
#: The oldest copies of any owners that were archived before ``until``, at most ``limit``.
EXPIRED_COPIES: Final = (
    select(archive.c.number)
    .where(archive.c.archived_at < bindparam("until"))
    .order_by(archive.c.archived_at)
    .limit(LIMIT)
)
#: Deletes them; copies that another transaction has locked are left for the next time.
DELETE_COPIES: Final = delete(archive).where(
    archive.c.number.in_(EXPIRED_COPIES.with_for_update(skip_locked=True))
)
#: Delete all that an owner has, the rows of history last.
ERASE: Final = tuple(
    delete(table).where(owned(table))
    for table in (
        *(owners, fallen, archive, summaries, claims, searched, term_counts),
        *(vector_queue, vectors, messages),
    )
)

# --- rows by their ids -----------------------------------------------------------------------


async def read_bodies(
    connection: AsyncConnection, owner: str, ids: Sequence[str], *, pruned: bool = True
) -> dict[str, str]:
    """Return the bodies of the rows with these ids, by id; without ``pruned`` of shown ones."""
    statement = _BY_IDS if pruned else _SHOWN_BY_IDS
    return {row.id: row.body for row in await execute_by_ids(connection, statement, owner, ids)}


async def execute_by_ids(
    connection: AsyncConnection,
    statement: Executable,
    owner: str,
    ids: Sequence[str],
    values: Mapping[str, object] | None = None,
) -> list[Row[*tuple[Any, ...]]]:
    """Execute a statement on the rows with the ``ids``, a batch at a time; returns what it does."""
    keys = {"in_owner": owner, **(values or {})}
    rows: list[Row[*tuple[Any, ...]]] = []
    for batch in batches(ids):
        rows += await connection.execute(statement, {**keys, "ids": batch})
    return rows


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield ids or numbers, as many at a time as one statement takes."""
    for start in range(0, len(values), BATCH_SIZE):
        yield values[start : start + BATCH_SIZE]


def row_limit(rows: int | None) -> int:
    """Return a LIMIT that databases accept: a negative one would be no limit, or an error."""
    return ALL_ROWS if rows is None else min(max(rows, 0), ALL_ROWS)


# --- locks -----------------------------------------------------------------------------------


async def lock_owner(connection: AsyncConnection, owner: str) -> bool:
    """Let other changes of an owner wait until this transaction ends; its first statement.

    Returns False if the owner has no rows; nothing is locked then.
    """
    return await connection.scalar(_LOCK_OWNER, {"in_owner": owner}) is not None


async def take_numbers(connection: AsyncConnection, owner: str, count: int = 0) -> int:
    """Take sequence numbers, and lock the owner, also one without rows; returns the first."""
    values = {"owner_key": owner, "last_sequence": count}
    last: int = (await connection.execute(_TAKE_NUMBERS, values)).scalar_one()
    return last - count + 1


def insert_or_add(column: Column[int]) -> Insert:
    """Build an insert that adds to a column of the row with its primary key, if any."""
    added = insert(column.table)
    return added.on_conflict_do_update(
        index_elements=column.table.primary_key, set_={column: column + added.excluded[column.name]}
    )


_TAKE_NUMBERS: Final = insert_or_add(owners.c.last_sequence).returning(owners.c.last_sequence)


# --- scopes and their running totals ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of a scope: all rows of an owner, or those of one conversation.

    Their parameters are ``in_owner``, ``in_conversation`` if the scope is a conversation, and
    those named below.
    """

    #: The newest row's sort time, pruned or not; the number of rows and printed tokens of the
    #: scope without pruned rows; and that row's own total of tokens, for computing ``beyond``.
    newest: Select[int, int, int, int]
    #: The number of rows up to and including the one with the id ``row_id``.
    rows_up_to: Select[int]
    #: Bodies newest first, each with the tokens before it, printed and native: at most ``limit``
    #: rows that are not pruned, and whose total of tokens is over ``beyond``.
    page: Select[str, int, int]
    #: The ``limit`` nearest rows before and after the position ``at_time``, ``at_sequence`` that
    #: are not pruned, the nearest first.
    older: Select[str]
    newer: Select[str]
    #: Rewrites the totals from the position ``from_time``, ``from_sequence`` on.
    recount: Update


class RowScope(NamedTuple):
    """The statements of one owner or conversation, with the parameters that name it."""

    statements: Statements
    keys: Mapping[str, str | int]


def scope(owner: str, conversation: str | None = None) -> RowScope:
    """Return the statements of an owner, or of one of the owner's conversations."""
    if conversation is None:
        return RowScope(OF_OWNER, {"in_owner": owner})
    return RowScope(_OF_CONVERSATION, {"in_owner": owner, "in_conversation": conversation})


async def recount(connection: AsyncConnection, owner: str, changed: Collection[ChangedRow]) -> int:
    """Rewrite the totals of all rows from those that changed on; returns how many changed."""
    first: dict[str | None, tuple[int, int]] = {}
    # newest first, so that the oldest of each scope stays
    for row in sorted(changed, key=lambda row: (row.sort_time, row.sequence), reverse=True):
        first |= dict.fromkeys((None, row.conversation_id), (row.sort_time, row.sequence))
    for conversation, (sort_time, sequence) in first.items():
        statements, keys = scope(owner, conversation)
        position = {"from_time": sort_time, "from_sequence": sequence}
        await connection.execute(statements.recount, {**keys, **position})
    return len(changed)


def _statements(
    members: ColumnElement[bool], rows: Column[int], tokens: Column[int], native: Column[int]
) -> Statements:
    """Build the statements of a scope from its condition and the columns of its totals."""
    newest_first = [column.desc() for column in POSITION]
    expired_rows, expired_tokens = _expired(members, rows, tokens)
    newest = (
        select(
            messages.c.sort_time,
            (rows - expired_rows).label("rows"),
            (tokens - expired_tokens).label("tokens"),
            tokens.label("total"),
        )
        .where(members)
        .order_by(*newest_first)
        .limit(1)
    )
    rows_up_to = select(rows - expired_rows).where(members, messages.c.id == bindparam("row_id"))
    page = (
        select(
            messages.c.body,
            (tokens - messages.c.printed_tokens).label("start"),
            (native - messages.c.native_tokens).label("native_start"),
        )
        .where(
            members, messages.c.pruned == literal(0), tokens > bindparam("beyond", type_=BigInteger)
        )
        .order_by(tokens.desc(), *newest_first)
        .limit(LIMIT)
    )
    position = tuple_(
        bindparam("at_time", type_=BigInteger), bindparam("at_sequence", type_=BigInteger)
    )
    # with ``pruned = 0``, SQLite would choose an index in another order
    shown = select(messages.c.body).where(members, messages.c.pruned != literal(1)).limit(LIMIT)
    summands = {
        rows: literal(1),
        tokens: messages.c.printed_tokens,
        native: messages.c.native_tokens,
    }
    return Statements(
        newest=newest,
        rows_up_to=rows_up_to,
        page=page,
        older=shown.where(tuple_(*POSITION) < position).order_by(*newest_first),
        newer=shown.where(tuple_(*POSITION) > position).order_by(*POSITION),
        recount=_recount(members, summands),
    )


def _expired(
    members: ColumnElement[bool], rows: Column[int], tokens: Column[int]
) -> tuple[ScalarSelect[int], ScalarSelect[int]]:
    """Return the rows and tokens that expired rows still add to the totals: see `schema`.

    They are what the oldest row's totals hold besides the row itself.
    """
    counted = 1 - messages.c.pruned

    def in_oldest(value: ColumnElement[int]) -> ScalarSelect[int]:
        oldest = select(value).where(members).order_by(*POSITION).limit(1)
        return oldest.correlate(None).scalar_subquery()

    return in_oldest(rows - counted), in_oldest(tokens - messages.c.printed_tokens * counted)


def _recount(
    members: ColumnElement[bool], summands: Mapping[Column[int], ColumnElement[int]]
) -> Update:
    """Build the update of totals, each given with what rows that are not pruned add to it."""
    first = tuple_(
        bindparam("from_time", type_=BigInteger), bindparam("from_sequence", type_=BigInteger)
    )
    before = (
        select(*summands)
        .where(members, tuple_(*POSITION) < first)
        .order_by(*(column.desc() for column in POSITION))
        .limit(1)
        .subquery()
    )
    counted = 1 - messages.c.pruned
    running = (
        select(
            messages.c.id,
            *(
                func.coalesce(select(before.c[total.name]).scalar_subquery(), 0)
                + func.sum(summand * counted).over(order_by=POSITION)
                for total, summand in summands.items()
            ),
        )
        .where(members, tuple_(*POSITION) >= first)
        .subquery()
    )
    _, *totals = running.c
    return (
        update(messages)
        .where(OWNED, messages.c.id == running.c.id)
        .values(dict(zip(summands, totals, strict=True)))
    )


OF_OWNER: Final = _statements(
    OWNED, messages.c.owner_rows, messages.c.owner_tokens, messages.c.owner_native
)
_OF_CONVERSATION: Final = _statements(
    and_(OWNED, IN_CONVERSATION),
    messages.c.conversation_rows,
    messages.c.conversation_tokens,
    messages.c.conversation_native,
)


# --- the search index ------------------------------------------------------------------------

#: A row, and the terms that find it.
RowTerms = tuple[ChangedRow, Sequence[str]]

#: Adds ``rows`` to the count of a term; a negative number subtracts.
_COUNT: Final = insert_or_add(term_counts.c.rows)
#: Deletes entries by their rows' numbers, which lie between ``first`` and ``last``, and returns
#: their keys. The bounds keep a planner without statistics from reading all entries of an owner.
_UNINDEX: Final = (
    delete(searched)
    .where(
        owned(searched),
        searched.c.sequence.in_(bindparam("numbers", expanding=True)),
        searched.c.sequence.between(bindparam("first"), bindparam("last")),
    )
    .returning(searched.c.terms)
)
#: Deletes the count of a term that no row has any more. Run term by term: for many terms at once, a
#: planner without statistics would read all counts of an owner.
_DELETE_COUNT: Final = delete(term_counts).where(
    owned(term_counts), term_counts.c.term == bindparam("of_term"), term_counts.c.rows <= 0
)


async def index_rows(connection: AsyncConnection, owner: str, rows: Iterable[RowTerms]) -> None:
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


def index_entries(owner: str, rows: Iterable[RowTerms]) -> list[dict[str, Any]]:
    """Return the entries of rows in the table `searched`; rows without terms have none."""
    keys = IndexKeys(owner)
    return [
        {
            "owner_key": owner,
            "sequence": row.sequence,
            "sort_time": row.sort_time,
            "id": row.id,
            "terms": keys.of_row(terms, row.conversation_id),
        }
        for row, terms in rows
        if terms
    ]


def count_keys(owner: str, entries: Iterable[Sequence[int]]) -> Counter[int]:
    """Count the entries with each key; the key of all rows counts every entry."""
    every_row = IndexKeys(owner).every_row
    return Counter(key for keys in entries for key in (*keys, every_row))


async def _add_counts(connection: AsyncConnection, owner: str, rows: Mapping[int, int]) -> None:
    values = [{"owner_key": owner, "term": term, "rows": n} for term, n in sorted(rows.items())]
    if values:
        await connection.execute(_COUNT, values)
