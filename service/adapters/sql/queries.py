"""Statements on an owner's rows: by scope or by ids, the owner's lock, and the running totals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ScalarSelect,
    Select,
    Update,
    and_,
    bindparam,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.schema import insert, messages, owners

T = TypeVar("T")

#: Values of ``beyond`` and ``limit`` that bound nothing.
ALL_TOKENS: Final = -1
ALL_ROWS: Final = 2**63 - 1
#: Ids in one statement; databases limit the number of parameters.
BATCH_SIZE: Final = 500

#: Conditions: an owner's rows, those of one conversation, and those with the ``ids``.
OWNED: Final = messages.c.owner_key == bindparam("in_owner")
IN_CONVERSATION: Final = messages.c.conversation_id == bindparam("in_conversation")
WITH_IDS: Final = and_(OWNED, messages.c.id.in_(bindparam("ids", expanding=True)))
#: The order of a history.
_POSITION: Final = (messages.c.sort_time, messages.c.sequence)

_BY_IDS: Final = select(messages.c.id, messages.c.body).where(WITH_IDS)
#: Locks an owner, so that other changes wait until the transaction ends; returns nothing if there
#: is no such owner. SQLite's writers are locked already.
_LOCK_OWNER: Final = (
    select(owners.c.last_sequence)
    .where(owners.c.owner_key == bindparam("in_owner"))
    .with_for_update()
)


class ChangedRow(NamedTuple):
    """A row that was added, hidden or shown: its columns `CHANGED`."""

    conversation_id: str | None
    sort_time: int
    sequence: int
    id: str


#: The columns that statements return of the rows that they change.
CHANGED: Final = (messages.c.conversation_id, *_POSITION, messages.c.id)
#: Inserts the rows that are new, and returns them.
ADD_ROWS: Final = insert(messages).on_conflict_do_nothing().returning(*CHANGED)


# --- rows by their ids -----------------------------------------------------------------------


async def read_bodies(
    connection: AsyncConnection, owner: str, ids: Sequence[str]
) -> dict[str, str]:
    """Return the bodies of the rows with these ids, by id; all are keys of the tables."""
    bodies: dict[str, str] = {}
    for batch in batches(ids):
        rows = await connection.execute(_BY_IDS, {"in_owner": owner, "ids": batch})
        bodies |= {row.id: row.body for row in rows}
    return bodies


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


def _add_to(taken: Insert) -> Insert:
    later = owners.c.last_sequence + taken.excluded.last_sequence
    return taken.on_conflict_do_update(
        index_elements=[owners.c.owner_key], set_={"last_sequence": later}
    )


_TAKE_NUMBERS: Final = _add_to(insert(owners)).returning(owners.c.last_sequence)


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
    #: Rewrites the totals from the position ``from_time``, ``from_sequence`` on.
    recount: Update


class RowScope(NamedTuple):
    """The statements of one owner or conversation, with the parameters that name it."""

    statements: Statements
    keys: Mapping[str, str | int]


def scope(owner: str, conversation: str | None = None) -> RowScope:
    """Return an owner, or one of the owner's conversations; both are keys of the tables."""
    if conversation is None:
        return RowScope(OF_OWNER, {"in_owner": owner})
    return RowScope(_OF_CONVERSATION, {"in_owner": owner, "in_conversation": conversation})


async def recount(connection: AsyncConnection, owner: str, changed: Iterable[ChangedRow]) -> int:
    """Rewrite the totals of all rows from those that changed on; returns how many changed."""
    positions: dict[str | None, list[tuple[int, int]]] = {}
    for row in changed:
        for conversation in {None, row.conversation_id}:
            positions.setdefault(conversation, []).append((row.sort_time, row.sequence))
    for conversation, changed_positions in positions.items():
        statements, keys = scope(owner, conversation)
        sort_time, sequence = min(changed_positions)
        first = {"from_time": sort_time, "from_sequence": sequence}
        await connection.execute(statements.recount, {**keys, **first})
    return len(positions.get(None, ()))


def _statements(
    members: ColumnElement[bool], rows: Column[int], tokens: Column[int], native: Column[int]
) -> Statements:
    """Build the statements of a scope from its condition and the columns of its totals."""
    newest_first = [column.desc() for column in _POSITION]
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
        .limit(bindparam("limit", type_=BigInteger))
    )
    summands = {
        rows: literal(1),
        tokens: messages.c.printed_tokens,
        native: messages.c.native_tokens,
    }
    return Statements(
        newest=newest, rows_up_to=rows_up_to, page=page, recount=_recount(members, summands)
    )


def _expired(
    members: ColumnElement[bool], rows: Column[int], tokens: Column[int]
) -> tuple[ScalarSelect[int], ScalarSelect[int]]:
    """Return the rows and tokens that expired rows still add to the totals: see `schema`.

    They are what the oldest row's totals hold besides the row itself.
    """
    counted = 1 - messages.c.pruned

    def in_oldest(value: ColumnElement[int]) -> ScalarSelect[int]:
        oldest = select(value).where(members).order_by(*_POSITION).limit(1)
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
        .where(members, tuple_(*_POSITION) < first)
        .order_by(*(column.desc() for column in _POSITION))
        .limit(1)
        .subquery()
    )
    counted = 1 - messages.c.pruned
    running = (
        select(
            messages.c.id,
            *(
                func.coalesce(select(before.c[total.name]).scalar_subquery(), 0)
                + func.sum(summand * counted).over(order_by=_POSITION)
                for total, summand in summands.items()
            ),
        )
        .where(members, tuple_(*_POSITION) >= first)
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
