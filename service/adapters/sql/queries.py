"""Rows by their ids, however many those are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ScalarSelect,
    Select,
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
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from service.adapters.sql.schema import archive, fallen, insert, messages, owners, summaries

#: A ``beyond`` and a ``limit`` that bound nothing.
ALL_TOKENS: Final = -1
ALL_ROWS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What is asked of a scope: all rows of an owner, or those of one of the conversations.

    Parameters are ``in_owner``, and ``in_conversation`` where the scope is one.
    """

    #: The newest row's sort time, pruned or not; how many rows and printed tokens there are of all
    #: that aren't; and that row's own total of tokens, from which a bound is reckoned.
    newest: Select[int, int, int, int]
    #: How many rows there are up to the one with the id ``name``, itself included.
    place: Select[int]
    #: Bodies newest first, each with the tokens before it, printed and native ones: ``limit`` at
    #: most, of rows whose total of tokens is over ``beyond``, without those that are pruned.
    page: Select[str, int, int]
    #: Write the totals anew from the place ``from_time``, ``from_sequence`` on.
    recount: Update


def _statements(
    members: ColumnElement[bool], rows: Column[int], tokens: Column[int], native: Column[int]
) -> Statements:
    """Build the statements of a scope from its condition and the columns of its totals."""
    newest_first = (messages.c.sort_time.desc(), messages.c.sequence.desc())
    gone_rows, gone_tokens = _gone(members, rows, tokens)
    newest = (
        select(
            messages.c.sort_time,
            (rows - gone_rows).label("rows"),
            (tokens - gone_tokens).label("tokens"),
            tokens.label("total"),
        )
        .where(members)
        .order_by(*newest_first)
        .limit(1)
    )
    place = select(rows - gone_rows).where(members, messages.c.id == bindparam("name"))
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
    sums = {rows: literal(1), tokens: messages.c.printed_tokens, native: messages.c.native_tokens}
    recount = _recount(members, sums)
    return Statements(newest=newest, place=place, page=page, recount=recount)


def _gone(
    members: ColumnElement[bool], rows: Column[int], tokens: Column[int]
) -> tuple[ScalarSelect[int], ScalarSelect[int]]:
    """Return what the oldest row's totals count beside it: rows and tokens that have expired."""
    counted = 1 - messages.c.pruned

    def first(value: ColumnElement[int]) -> ScalarSelect[int]:
        oldest = select(value).where(members)
        oldest = oldest.order_by(messages.c.sort_time, messages.c.sequence).limit(1)
        return oldest.correlate(None).scalar_subquery()

    return first(rows - counted), first(tokens - messages.c.printed_tokens * counted)


def _recount(
    members: ColumnElement[bool], sums: Mapping[Column[int], ColumnElement[int]]
) -> Update:
    """Build the update of totals, each given with what it sums of the rows that are not pruned."""
    place = (messages.c.sort_time, messages.c.sequence)
    first = tuple_(
        bindparam("from_time", type_=BigInteger), bindparam("from_sequence", type_=BigInteger)
    )
    before = (
        select(*sums)
        .where(members, tuple_(*place) < first)
        .order_by(*(column.desc() for column in place))
        .limit(1)
        .subquery()
    )
    counted = 1 - messages.c.pruned
    running = (
        select(
            messages.c.id,
            *(
                func.coalesce(select(before.c[total.name]).scalar_subquery(), 0)
                + func.sum(each * counted).over(order_by=place)
                for total, each in sums.items()
            ),
        )
        .where(members, tuple_(*place) >= first)
        .subquery()
    )
    _, *totals = running.c
    return (
        update(messages)
        .where(messages.c.owner_key == bindparam("in_owner"), messages.c.id == running.c.id)
        .values(dict(zip(sums, totals, strict=True)))
    )


def _take_numbers() -> ReturningInsert[int]:
    taken = insert(owners)
    later = owners.c.last_sequence + taken.excluded.last_sequence
    return taken.on_conflict_do_update(
        index_elements=[owners.c.owner_key], set_={"last_sequence": later}
    ).returning(owners.c.last_sequence)


#: Add ``last_sequence`` to the owner's, and return the sum: the last of the numbers taken.
TAKE_NUMBERS: Final = _take_numbers()
#: What is told of rows that were changed: their conversations, their places, and their ids.
_CHANGED: Final = (
    messages.c.conversation_id,
    messages.c.sort_time,
    messages.c.sequence,
    messages.c.id,
)
#: Insert the rows that are new; tell of them.
ADD_MESSAGES: Final = insert(messages).on_conflict_do_nothing().returning(*_CHANGED)

_OWNED: Final = messages.c.owner_key == bindparam("in_owner")
_CONVERSATION: Final = messages.c.conversation_id == bindparam("in_conversation")

#: Ids that one statement takes; databases bound their parameters.
IDS_AT_ONCE: Final = 500
_NAMED: Final = and_(_OWNED, messages.c.id.in_(bindparam("ids", expanding=True)))
#: The rows with the ``ids``, in any order.
BY_IDS: Final = select(messages.c.id, messages.c.body).where(_NAMED)

#: Lock an owner, so that appends and other changes wait until the transaction has ended; returns
#: nothing where there is no such owner. SQLite's writers are locked already.
LOCK_OWNER: Final = (
    select(owners.c.last_sequence)
    .where(owners.c.owner_key == bindparam("in_owner"))
    .with_for_update()
)
#: Set ``pruned`` to ``now_pruned`` on the ``ids`` that have it otherwise; tell of them.
PRUNE: Final = (
    update(messages)
    .where(_NAMED, messages.c.pruned != bindparam("now_pruned"))
    .values(pruned=bindparam("now_pruned"))
    .returning(*_CHANGED)
)
#: Mark those of the ``ids`` as fallen that are stored, shown and not marked; return them. Asked
#: with ``=``, SQLite would read all that an owner has by an index with ``pruned`` in it.
FALL: Final = (
    insert(fallen)
    .from_select(
        ["owner_key", "id"],
        select(messages.c.owner_key, messages.c.id).where(_NAMED, messages.c.pruned != literal(1)),
    )
    .on_conflict_do_nothing()
    .returning(fallen.c.id)
)
#: The newest ``limit`` copies of an archive, the last that fell out first.
ARCHIVED: Final = (
    select(archive)
    .where(archive.c.owner_key == bindparam("in_owner"))
    .order_by(archive.c.number.desc())
    .limit(bindparam("limit", type_=BigInteger))
)
#: Delete all copies from before ``until``, of any owner. Those that another transaction holds are
#: left for the next time: to wait for them behind an owner's lock could be for ever.
FORGET: Final = delete(archive).where(
    archive.c.number.in_(
        select(archive.c.number)
        .where(archive.c.archived_at < bindparam("until"))
        .with_for_update(skip_locked=True)
    )
)
#: Rows that are pruned, that once fell out, copies, and summaries, of an owner.
COUNTS: Final = select(
    select(func.count()).where(_OWNED, messages.c.pruned == literal(1)).scalar_subquery(),
    select(func.count()).where(fallen.c.owner_key == bindparam("in_owner")).scalar_subquery(),
    select(func.count()).where(archive.c.owner_key == bindparam("in_owner")).scalar_subquery(),
    select(func.count()).where(summaries.c.owner_key == bindparam("in_owner")).scalar_subquery(),
)

OWNER: Final = _statements(
    _OWNED, messages.c.owner_rows, messages.c.owner_tokens, messages.c.owner_native
)
CONVERSATION: Final = _statements(
    and_(_OWNED, _CONVERSATION),
    messages.c.conversation_rows,
    messages.c.conversation_tokens,
    messages.c.conversation_native,
)


def row_limit(rows: int | None) -> int:
    """Return a LIMIT that databases take: a negative one would be none at all, or an error."""
    return ALL_ROWS if rows is None else min(max(rows, 0), ALL_ROWS)


@dataclass(frozen=True, slots=True)
class Scope:
    """The statements of one owner or conversation, with the parameters that name it."""

    statements: Statements
    keys: Mapping[str, str | int]


def scope(owner: str, conversation: str | None = None) -> Scope:
    """Return an owner, or one of the owner's conversations; both are keys of the table."""
    if conversation is None:
        return Scope(OWNER, {"in_owner": owner})
    return Scope(CONVERSATION, {"in_owner": owner, "in_conversation": conversation})


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
