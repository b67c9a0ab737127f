"""The statements of searches; each is bounded by an index, and to one owner."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVarTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Select,
    TableValuedAlias,
    and_,
    bindparam,
    column,
    func,
    or_,
    select,
    table,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY

from service.adapters.sql.schema import as_word, messages, searched, term_counts
from service.recall.search import MAX_FOUND, IndexQuery

Ts = TypeVarTuple("Ts")

_OWNED: Final = messages.c.owner_key == bindparam("in_owner")
_CONVERSATION: Final = messages.c.conversation_id == bindparam("in_conversation")
_SEARCHED: Final = searched.c.owner_key == bindparam("in_owner")
_PLACES: Final = (messages.c.sort_time, messages.c.sequence)
#: The place that rows have to come before.
_END: Final = tuple_(
    bindparam("end_time", type_=BigInteger), bindparam("end_sequence", type_=BigInteger)
)


def _each(name: str) -> TableValuedAlias:
    """Return the numbers of an array as rows of Postgres'."""
    given = func.unnest(bindparam(name, type_=ARRAY(BigInteger)))
    return given.table_valued(column("number", BigInteger)).render_derived(name)


def _one_by_one(row: Select[*Ts], given: TableValuedAlias) -> Select[*Ts]:
    """Return a statement for each number that is given, which finds a row at most, as one.

    Lateral and limited, so that each is looked for by a key: asked for many at once, a planner
    would rather read all that there is of an owner.
    """
    found = row.limit(1).lateral("found")
    return select(*found.c).select_from(given.join(found, true()))


# --- terms -----------------------------------------------------------------------------------

_TERMS: Final = _each("terms")
_COUNTED: Final = select(term_counts.c.term, term_counts.c.rows.label("having")).where(
    term_counts.c.owner_key == bindparam("in_owner")
)
#: By dialect: how many of an owner's rows have each of the ``terms``.
KNOWN: Final[Mapping[str, Select[int, int]]] = {
    "postgresql": _one_by_one(_COUNTED.where(term_counts.c.term == _TERMS.c.number), _TERMS),
    "sqlite": _COUNTED.where(term_counts.c.term.in_(bindparam("terms", expanding=True))),
}


# --- rows by their terms ---------------------------------------------------------------------


def hits(dialect: str, query: IndexQuery, within: Sequence[int]) -> Select[int, Sequence[int]]:
    """Return what asks for the numbers and terms of rows, the newest first.

    They have all terms of ``within``, as each row of a conversation has. Parameters are
    ``in_owner``, ``end_time`` and ``end_sequence``.
    """
    return _HITS[dialect](query, within)


def _in_postgres(query: IndexQuery, within: Sequence[int]) -> Select[int, Sequence[int]]:
    either = [searched.c.terms.op("&&")(_keys(query.alone))] if query.alone else []
    both = [searched.c.terms.op("@>")(_keys(pair)) for pair in query.pairs]
    # said with each of them, so that the index looks for both at once
    of_scope = [searched.c.terms.op("@>")(_keys(within))] if within else []
    having = select(searched).where(or_(*(and_(each, *of_scope) for each in (*either, *both))))
    # made first, so that the index of terms is the one that can be used: a planner that knows
    # nothing of an owner would rather read all that there is of one
    found = having.cte("found").prefix_with("MATERIALIZED").alias("searched")
    return (
        select(found.c.sequence, found.c.terms)
        .where(found.c.owner_key == bindparam("in_owner"))
        .where(tuple_(found.c.sort_time, found.c.sequence) < _END)
        .order_by(found.c.sequence.desc())
        .limit(MAX_FOUND)
    )


def _keys(keys: Sequence[int]) -> ColumnElement[Any]:
    return bindparam(None, list(keys), type_=ARRAY(BigInteger), unique=True)


_full_text: Final = table("full_text", column("rowid"), column("full_text"))


def _in_sqlite(query: IndexQuery, within: Sequence[int]) -> Select[int, Sequence[int]]:
    # digits and letters alone, and of our making: nothing in it can be read as another query
    alone = [f'"{as_word(term)}"' for term in query.alone]
    pairs = [f'("{as_word(one)}" AND "{as_word(other)}")' for one, other in query.pairs]
    scope = [f'"{as_word(term)}"' for term in within]
    expression = " AND ".join([f"({' OR '.join([*alone, *pairs])})", *scope])
    return (
        select(searched.c.sequence, searched.c.terms)
        .select_from(_full_text)
        .join(searched, searched.c.number == _full_text.c.rowid)
        .where(_full_text.c.full_text.op("MATCH")(expression))
        # here, so that rows behind the place don't count: a build has read them already
        .where(_SEARCHED, tuple_(searched.c.sort_time, searched.c.sequence) < _END)
        .order_by(_full_text.c.rowid.desc())
        .limit(MAX_FOUND)
    )


_HITS: Final[Mapping[str, Callable[[IndexQuery, Sequence[int]], Select[int, Sequence[int]]]]] = {
    "postgresql": _in_postgres,
    "sqlite": _in_sqlite,
}


# --- rows by where they stand ----------------------------------------------------------------


_NUMBERS: Final = _each("numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What is asked of a scope; totals are those that its rows have in it."""

    #: The conversation and place of the row with the id ``name``, the total up to its end, and its
    #: own tokens.
    end: Select[str, int, int, int, int]
    #: By dialect: the number of each of the owner's rows with the ``numbers``, its total, and its
    #: own tokens.
    spots: Mapping[str, Select[int, int, int]]
    #: By dialect: bodies and places of rows before ``end_time`` and ``end_sequence`` whose totals
    #: lie in `stretch_values`, ``limit`` at most.
    around: Mapping[str, Select[str, int, int]]


def _places(members: ColumnElement[bool], tokens: Column[int]) -> Places:
    totals = (tokens.label("total"), messages.c.printed_tokens.label("own"))
    same = and_(messages.c.owner_key == searched.c.owner_key, messages.c.id == searched.c.id)
    found = select(searched.c.sequence, *totals).select_from(searched).join(messages, same)
    numbered = searched.c.sequence.in_(bindparam("numbers", expanding=True))
    return Places(
        # by the key of the table, whatever a planner knows of the conversation
        end=select(messages.c.conversation_id, *_PLACES, *totals).where(
            _OWNED, messages.c.id == bindparam("name")
        ),
        spots={
            "postgresql": _one_by_one(
                found.where(_SEARCHED, searched.c.sequence == _NUMBERS.c.number), _NUMBERS
            ),
            "sqlite": found.where(_SEARCHED, numbered),
        },
        around={
            "postgresql": _around_in_postgres(members, tokens),
            "sqlite": _around_in_sqlite(members, tokens),
        },
    )


_ARRAYS: Final = (
    func.unnest(
        bindparam("lows", type_=ARRAY(BigInteger)), bindparam("highs", type_=ARRAY(BigInteger))
    )
    .table_valued("low", "high")
    .render_derived("stretches")
)
_JSON: Final = func.json_each(bindparam("stretches")).table_valued("value")
_BOUNDS: Final = tuple(func.json_extract(_JSON.c.value, f"$[{place}]") for place in (0, 1))


_LIMIT: Final = bindparam("limit", type_=BigInteger)


def _around_in_postgres(members: ColumnElement[bool], tokens: Column[int]) -> Select[str, int, int]:
    inside = (members, messages.c.pruned == 0, tokens.between(_ARRAYS.c.low, _ARRAYS.c.high))
    # lateral, so that each stretch is a range of an index, one after the other
    rows = select(messages.c.body, *_PLACES).where(*inside)
    near = rows.order_by(tokens, *_PLACES).limit(_LIMIT).lateral("near")
    return (
        select(near.c.body, near.c.sort_time, near.c.sequence)
        .select_from(_ARRAYS.join(near, true()))
        .where(tuple_(near.c.sort_time, near.c.sequence) < _END)
        .limit(_LIMIT)
    )


def _around_in_sqlite(members: ColumnElement[bool], tokens: Column[int]) -> Select[str, int, int]:
    inside = and_(
        members,
        messages.c.pruned == 0,
        tokens.between(_BOUNDS[0], _BOUNDS[1]),
        tuple_(*_PLACES) < _END,  # rows without tokens have the total of the one before them
    )
    return (
        select(messages.c.body, *_PLACES)
        .select_from(_JSON)
        # outer, so that they are read in their order, each by its own range; those without a row
        # are left out by a function, as SQLite would see through a comparison and join otherwise
        .join(messages, inside, isouter=True)
        .where(func.ifnull(messages.c.pruned, 1) == 0)
        .limit(_LIMIT)
    )


def stretch_values(dialect: str, stretches: Sequence[tuple[int, int]]) -> Mapping[str, object]:
    """Return the parameters that name stretches, the first of which are read first."""
    if dialect == "sqlite":
        return {"stretches": json.dumps(stretches)}
    lows, highs = zip(*stretches, strict=True)
    return {"lows": list(lows), "highs": list(highs)}


#: Of an owner, and of a conversation.
OWNER: Final = _places(_OWNED, messages.c.owner_tokens)
CONVERSATION: Final = _places(and_(_OWNED, _CONVERSATION), messages.c.conversation_tokens)
