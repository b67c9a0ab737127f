"""Search in SQL: finds rows by terms, with SQLite's full text or a GIN index of Postgres.

Every statement reads ranges of indexes of one owner. A search takes five of them: where the rows
to search end, how many rows have each term, the newest rows with some of the terms, the positions
of the best of these, and the rows around those positions.
"""

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
from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from service.adapters.sql.queries import IN_CONVERSATION, OWNED, scope
from service.adapters.sql.schema import as_word, messages, searched, term_counts
from service.adapters.store_records import IndexKeys
from service.recall.search import (
    MAX_FOUND,
    ROWS_PER_HIT,
    Hit,
    IndexQuery,
    RowPosition,
    SearchRequest,
    TermStatistics,
    choose_query,
    rank_hits,
    token_ranges,
)

Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The rows to search: an owner's, or those of one conversation; keys of the tables."""

    owner: str
    conversation: str | None

    @property
    def scope_keys(self) -> tuple[int, ...]:
        """Return the index keys that every row of the scope has."""
        if self.conversation is None:
            return ()
        return (IndexKeys(self.owner).conversation(self.conversation),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchStatements:
    """The statements of a scope; totals are the tokens of its rows up to the end of one."""

    #: The conversation and position of the row with the id ``row_id``, its total, and its own
    #: tokens.
    end: Select[str, int, int, int, int]
    #: By dialect: the number of each of the owner's rows with the ``numbers``, its total, and its
    #: own tokens.
    positions: Mapping[str, Select[int, int, int]]
    #: By dialect: bodies and positions of at most ``limit`` rows before ``end_time`` and
    #: ``end_sequence`` whose totals are in the ranges of `_range_parameters`.
    around: Mapping[str, Select[str, int, int]]


async def search_rows(
    connection: AsyncConnection, searched_scope: SearchScope, request: SearchRequest
) -> list[Row]:
    """Return the best hits with the rows around them, newest first."""
    owner, conversation = searched_scope.owner, searched_scope.conversation
    statements = _OF_OWNER if conversation is None else _OF_CONVERSATION
    last_row = {"in_owner": owner, "row_id": request.before}
    end = (await connection.execute(statements.end, last_row)).first()
    statistics = await _read_statistics(connection, searched_scope, request.terms)
    if end is None or not statistics.having or conversation not in (None, end.conversation_id):
        return []
    before = {"end_time": end.sort_time, "end_sequence": end.sequence}
    hits = await _read_hits(connection, searched_scope, statistics, before)
    numbers = rank_hits(hits, statistics, request.max_rows // ROWS_PER_HIT)
    positions = await _read_positions(connection, statements, owner, numbers)
    ranges = token_ranges(positions, end.total - end.own)
    if not ranges:
        return []
    dialect, keys = connection.dialect.name, scope(owner, conversation).keys
    values = {**keys, **before, "limit": request.max_rows, **_range_parameters(dialect, ranges)}
    rows = await connection.execute(statements.around[dialect], values)
    ordered = sorted(rows, key=lambda row: (row.sort_time, row.sequence), reverse=True)
    return [json.loads(row.body) for row in ordered]


async def _read_statistics(
    connection: AsyncConnection, searched_scope: SearchScope, terms: Sequence[str]
) -> TermStatistics:
    keys, scope_keys = IndexKeys(searched_scope.owner), searched_scope.scope_keys
    term_keys = keys(terms)
    wanted = [*term_keys, keys.every_row, *scope_keys]
    values = {"in_owner": searched_scope.owner, "terms": wanted}
    rows = await connection.execute(_COUNTS[connection.dialect.name], values)
    counts = {row.term: row.having for row in rows}
    total = counts.get(keys.every_row, 0)
    return TermStatistics(
        rows=total,
        scope=min((counts.get(key, 0) for key in scope_keys), default=total),
        having={key: counts[key] for key in term_keys if key in counts},
    )


async def _read_hits(
    connection: AsyncConnection,
    searched_scope: SearchScope,
    statistics: TermStatistics,
    before: Mapping[str, int],
) -> list[Hit]:
    query = choose_query(statistics)
    if not (query.alone or query.pairs):
        return []
    statement = _HITS[connection.dialect.name](query, searched_scope.scope_keys)
    rows = await connection.execute(statement, {"in_owner": searched_scope.owner, **before})
    return [Hit(row.sequence, statistics.having.keys() & row.terms) for row in rows]


async def _read_positions(
    connection: AsyncConnection, statements: _SearchStatements, owner: str, numbers: Sequence[int]
) -> list[RowPosition]:
    """Return the positions of rows in the order of their ``numbers``."""
    statement = statements.positions[connection.dialect.name]
    rows = await connection.execute(statement, {"in_owner": owner, "numbers": numbers})
    positions = {row.sequence: RowPosition(row.total, row.own) for row in rows}
    return [positions[number] for number in numbers if number in positions]


# --- statements: hits by their terms ---------------------------------------------------------

_IN_OWNER: Final = searched.c.owner_key == bindparam("in_owner")
_ORDER: Final = (messages.c.sort_time, messages.c.sequence)
#: The position that all rows of the result precede.
_END: Final = tuple_(
    bindparam("end_time", type_=BigInteger), bindparam("end_sequence", type_=BigInteger)
)
_LIMIT: Final = bindparam("limit", type_=BigInteger)


def _unnest(name: str) -> TableValuedAlias:
    """Return the numbers of a Postgres array as a table."""
    numbers = func.unnest(bindparam(name, type_=ARRAY(BigInteger)))
    return numbers.table_valued(column("number", BigInteger)).render_derived(name)


def _one_by_one(row: Select[*Ts], numbers: TableValuedAlias) -> Select[*Ts]:
    """Return a statement that looks up at most one row for each of the numbers.

    Lateral and limited, so that each lookup uses a key. For many numbers at once, a planner would
    rather read all rows of an owner.
    """
    looked_up = row.limit(1).lateral("looked_up")
    return select(*looked_up.c).select_from(numbers.join(looked_up, true()))


_TERMS: Final = _unnest("terms")
_COUNTED: Final = select(term_counts.c.term, term_counts.c.rows.label("having")).where(
    term_counts.c.owner_key == bindparam("in_owner")
)
#: By dialect: how many of an owner's rows have each of the ``terms``.
_COUNTS: Final[Mapping[str, Select[int, int]]] = {
    "postgresql": _one_by_one(_COUNTED.where(term_counts.c.term == _TERMS.c.number), _TERMS),
    "sqlite": _COUNTED.where(term_counts.c.term.in_(bindparam("terms", expanding=True))),
}


def _postgres_hits(query: IndexQuery, scope_keys: Sequence[int]) -> Select[int, Sequence[int]]:
    single = [searched.c.terms.op("&&")(_array(query.alone))] if query.alone else []
    pairs = [searched.c.terms.op("@>")(_array(pair)) for pair in query.pairs]
    # combined with each condition, so that the index looks for both at once
    in_scope = [searched.c.terms.op("@>")(_array(scope_keys))] if scope_keys else []
    matching = select(searched).where(or_(*(and_(match, *in_scope) for match in (*single, *pairs))))
    # materialized, so that only the index of terms can be used: without statistics the planner
    # would rather read all entries of an owner
    hits = matching.cte("hits").prefix_with("MATERIALIZED").alias("searched")
    return (
        select(hits.c.sequence, hits.c.terms)
        .where(hits.c.owner_key == bindparam("in_owner"))
        .where(tuple_(hits.c.sort_time, hits.c.sequence) < _END)
        .order_by(hits.c.sequence.desc())
        .limit(MAX_FOUND)
    )


def _array(keys: Sequence[int]) -> ColumnElement[Any]:
    return bindparam(None, list(keys), type_=ARRAY(BigInteger), unique=True)


_full_text: Final = table("full_text", column("rowid"), column("full_text"))


def _sqlite_hits(query: IndexQuery, scope_keys: Sequence[int]) -> Select[int, Sequence[int]]:
    # only digits and letters of our own making: nothing in them can change the expression
    single = [f'"{as_word(key)}"' for key in query.alone]
    pairs = [f'("{as_word(one)}" AND "{as_word(other)}")' for one, other in query.pairs]
    in_scope = [f'"{as_word(key)}"' for key in scope_keys]
    expression = " AND ".join([f"({' OR '.join([*single, *pairs])})", *in_scope])
    return (
        select(searched.c.sequence, searched.c.terms)
        .select_from(_full_text)
        .join(searched, searched.c.number == _full_text.c.rowid)
        .where(_full_text.c.full_text.op("MATCH")(expression))
        # here, so that newer rows, which a build has read already, don't count for the limit
        .where(_IN_OWNER, tuple_(searched.c.sort_time, searched.c.sequence) < _END)
        .order_by(_full_text.c.rowid.desc())
        .limit(MAX_FOUND)
    )


#: By dialect: the statement for the numbers and keys of the newest rows that match a query and have
#: all keys of the scope. Parameters are ``in_owner``, ``end_time`` and ``end_sequence``.
_HITS: Final[Mapping[str, Callable[[IndexQuery, Sequence[int]], Select[int, Sequence[int]]]]] = {
    "postgresql": _postgres_hits,
    "sqlite": _sqlite_hits,
}


# --- statements: rows by their position in a scope -------------------------------------------


_NUMBERS: Final = _unnest("numbers")


def _statements(members: ColumnElement[bool], tokens: Column[int]) -> _SearchStatements:
    totals = (tokens.label("total"), messages.c.printed_tokens.label("own"))
    same_row = and_(messages.c.owner_key == searched.c.owner_key, messages.c.id == searched.c.id)
    entries = select(searched.c.sequence, *totals).select_from(searched).join(messages, same_row)
    numbered = searched.c.sequence.in_(bindparam("numbers", expanding=True))
    return _SearchStatements(
        # by the key of the table, whatever a planner knows of the conversation
        end=select(messages.c.conversation_id, *_ORDER, *totals).where(
            OWNED, messages.c.id == bindparam("row_id")
        ),
        positions={
            "postgresql": _one_by_one(
                entries.where(_IN_OWNER, searched.c.sequence == _NUMBERS.c.number), _NUMBERS
            ),
            "sqlite": entries.where(_IN_OWNER, numbered),
        },
        around={
            "postgresql": _postgres_around(members, tokens),
            "sqlite": _sqlite_around(members, tokens),
        },
    )


_RANGES: Final = (
    func.unnest(
        bindparam("lows", type_=ARRAY(BigInteger)), bindparam("highs", type_=ARRAY(BigInteger))
    )
    .table_valued("low", "high")
    .render_derived("ranges")
)
_JSON_RANGES: Final = func.json_each(bindparam("ranges")).table_valued("value")
_JSON_BOUNDS: Final = tuple(
    func.json_extract(_JSON_RANGES.c.value, f"$[{index}]") for index in (0, 1)
)


def _range_parameters(dialect: str, ranges: Sequence[tuple[int, int]]) -> Mapping[str, object]:
    """Return the parameters for ranges of totals; the first range is read first."""
    if dialect == "sqlite":
        return {"ranges": json.dumps(ranges)}
    lows, highs = zip(*ranges, strict=True)
    return {"lows": list(lows), "highs": list(highs)}


def _postgres_around(members: ColumnElement[bool], tokens: Column[int]) -> Select[str, int, int]:
    inside = (members, messages.c.pruned == 0, tokens.between(_RANGES.c.low, _RANGES.c.high))
    # lateral, so that each range is a range of an index, one after the other
    rows = select(messages.c.body, *_ORDER).where(*inside)
    near = rows.order_by(tokens, *_ORDER).limit(_LIMIT).lateral("near")
    return (
        select(near.c.body, near.c.sort_time, near.c.sequence)
        .select_from(_RANGES.join(near, true()))
        .where(tuple_(near.c.sort_time, near.c.sequence) < _END)
        .limit(_LIMIT)
    )


def _sqlite_around(members: ColumnElement[bool], tokens: Column[int]) -> Select[str, int, int]:
    inside = and_(
        members,
        messages.c.pruned == 0,
        tokens.between(_JSON_BOUNDS[0], _JSON_BOUNDS[1]),
        tuple_(*_ORDER) < _END,  # rows without tokens have the total of the row before them
    )
    return (
        select(messages.c.body, *_ORDER)
        .select_from(_JSON_RANGES)
        # an outer join, so that the ranges are read in their order, each by a range of the index.
        # Ranges without a row are left out by a function: SQLite would optimise a comparison to an
        # inner join.
        .join(messages, inside, isouter=True)
        .where(func.ifnull(messages.c.pruned, 1) == 0)
        .limit(_LIMIT)
    )


_OF_OWNER: Final = _statements(OWNED, messages.c.owner_tokens)
_OF_CONVERSATION: Final = _statements(and_(OWNED, IN_CONVERSATION), messages.c.conversation_tokens)
