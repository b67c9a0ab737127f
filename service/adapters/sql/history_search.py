"""Search in SQL: finds rows by terms, with SQLite's full text or a GIN index of Postgres.

Every statement reads ranges of indexes of one owner. A search takes five of them: where the rows to
search end, how many rows have each term, the newest rows with some of the terms, the positions of
the best of these, and the rows around those positions. There is one more for each span of time, and
one for the positions of rows that have no term. If some of the best have no tokens, two more read
the rows next to these, and the last calls before them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import starmap
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar, TypeVarTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    Select,
    TableValuedAlias,
    Text,
    and_,
    bindparam,
    column,
    func,
    literal,
    or_,
    select,
    table,
    true,
    tuple_,
    type_coerce,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from formatters.rows import StoredRows
from service.adapters.sql.queries import LIMIT, OWNED, POSITION, owned, scope
from service.adapters.sql.schema import messages, searched, term_counts
from service.adapters.store_records import IndexKeys, keys_to_words, microseconds
from service.budget.counting import MESSAGE_OVERHEAD
from service.ports.stores import SearchRequest
from service.recall.search import (
    CONTEXT_TOKENS,
    MAX_DATED,
    MAX_FOUND,
    ROWS_AFTER,
    ROWS_BEFORE,
    ROWS_TO_CALL,
    WHOLE_SHARE,
    Hit,
    IndexQuery,
    RowPosition,
    TermStatistics,
    TokenRange,
    choose_query,
    merge_hits,
    most_hits,
    near_rank,
    rank_hits,
    take_best,
    take_dated,
    token_ranges,
    whole_ranges,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


#: Between bodies in one text: no JSON has such a character.
SEPARATOR: Final = "\x1e"


class _Place(NamedTuple):
    """The position of a row, the tokens up to its end by scope, and its own."""

    sort_time: int
    sequence: int
    owner_tokens: int
    conversation_tokens: int
    own: int


async def search_rows(
    connection: AsyncConnection, owner: str, conversation: str | None, request: SearchRequest
) -> StoredRows:
    """Return the best hits with the rows around them, newest first.

    They are an owner's, or those of one conversation; all are keys of the tables.
    """
    last_row = {"in_owner": owner, "row_id": request.before}
    last = (await connection.execute(_LAST_ROW, last_row)).first()
    # the index keys that every row of the scope has
    scope_keys = () if conversation is None else (IndexKeys(owner).conversation(conversation),)
    statistics = await _read_statistics(connection, owner, request.terms, scope_keys)
    is_known = bool(statistics.having or request.similar or request.spans)
    if last is None or not is_known or conversation not in (None, last[0]):
        return StoredRows(())
    _, owner_rows, conversation_rows, *place = last
    rows_before = owner_rows if conversation is None else conversation_rows
    end = _Place(*place)
    total = "owner_tokens" if conversation is None else "conversation_tokens"
    values = {
        **scope(owner, conversation).keys,
        "end_time": end.sort_time,
        "end_sequence": end.sequence,
        "limit": request.max_rows,
    }
    hits = await _find_hits(connection, statistics, scope_keys, request, total, values)
    positions = [RowPosition(getattr(row, total), row.own) for row in hits]
    end_total = getattr(end, total)
    # as if no hit were around another one
    tokens = sum([position.own + 2 * CONTEXT_TOKENS for position in positions])
    expected_rows = tokens * rows_before / max(end_total, 1)
    if expected_rows <= WHOLE_SHARE * request.max_rows and all(row.own for row in hits):
        whole = whole_ranges(positions, end_total - end.own)
        oldest_first = await _read_whole(connection, total, whole, values)
        if len(oldest_first) < request.max_rows:
            return StoredRows(oldest_first[::-1])
    ranges = token_ranges(positions, end_total - end.own)
    return await _read_best(connection, total, hits, ranges, values)


async def _find_hits(
    connection: AsyncConnection,
    statistics: TermStatistics,
    scope_keys: Sequence[int],
    request: SearchRequest,
    total: str,
    values: Mapping[str, Any],
) -> list[_Place]:
    """Return the places of the best hits, the best first."""
    dialect, query = connection.dialect.name, choose_query(statistics)
    hits: list[Hit] = []
    id_of: dict[int, str] = {}
    if query.alone or query.pairs:
        matching, wanted = _HITS[dialect](query, scope_keys)
        rows = await connection.execute(matching, {**values, **wanted})
        find_known, known = _KNOWN_TERMS[dialect](statistics.having), rows.all()
        hits = [Hit(sequence, find_known(terms)) for sequence, _, terms in known]
        id_of = {sequence: row_id for sequence, row_id, _ in known}
    most = most_hits(request.max_rows)
    ranked = rank_hits(hits, statistics, most)
    spans = [await _read_span(connection, _DATED[total], span, values) for span in request.spans]
    best = merge_hits(most, ranked, take_dated(spans, ranked, most), request.similar)
    by_number = await _read_places(connection, values["in_owner"], best, id_of)
    return [by_number[number] for number in best if number in by_number]


async def _read_best(
    connection: AsyncConnection,
    total: str,
    hits: Sequence[_Place],
    ranges: Sequence[TokenRange],
    values: Mapping[str, Any],
) -> StoredRows:
    """Return the rows in ranges around hits, the best up to the limit, newest first."""
    dialect, max_rows = connection.dialect.name, values["limit"]
    # hits without printed tokens, whose position in tokens other rows have, too
    bare = [
        (row.sort_time, row.sequence, near_rank(hit)) for hit, row in enumerate(hits) if not row.own
    ]
    near = await _read_near(connection, _AROUND[dialect, total], ranges, values)
    beside = await _read_near(connection, _BESIDE[dialect, total], bare, values)
    if not beside:
        return StoredRows([body for _, _, body in sorted(near, key=itemgetter(1), reverse=True)])
    best_keys = take_best([(rank, key) for rank, key, _ in (*near, *beside)], max_rows)
    bodies = {key: body for _, key, body in near}
    ids = {key: row_id for _, key, row_id in beside if key not in bodies}
    best_ids = _list_parameter(dialect, [ids[key] for key in best_keys if key in ids])
    rows = await connection.execute(_BODIES[dialect], {**values, "ids": best_ids})
    by_id: dict[str, str] = dict(rows.all())
    return StoredRows([by_id[ids[key]] if key in ids else bodies[key] for key in best_keys])


async def _read_whole(
    connection: AsyncConnection,
    total: str,
    ranges: Sequence[TokenRange],
    values: Mapping[str, object],
) -> list[str]:
    """Return the bodies of the rows in ranges, oldest first."""
    if not ranges:
        return []
    dialect, pairs = connection.dialect.name, [(each.first, each.last) for each in ranges]
    parameters = {**values, **_pair_parameters(dialect, pairs)}
    joined = await connection.scalar(_WHOLE[dialect, total], parameters)
    return joined.split(SEPARATOR) if joined else []


async def _read_near(
    connection: AsyncConnection,
    statement: "_Near",
    ranked: Sequence[tuple[int, int, int]],
    values: Mapping[str, object],
) -> list[tuple[int, tuple[int, int], str]]:
    """Return the ranks of pairs, each with the position of a row in it, and its body or id.

    ``ranked`` has pairs as `_pair_parameters` takes them, each followed by its rank.
    """
    if not ranked:
        return []
    pairs = [(one, two) for one, two, _ in ranked]
    parameters = {**values, **_pair_parameters(connection.dialect.name, pairs)}
    rows = await connection.execute(statement, parameters)
    return [(ranked[index][2], (time, number), text) for index, time, number, text in rows.all()]


async def _read_places(
    connection: AsyncConnection, owner: str, numbers: Iterable[int], id_of: Mapping[int, str]
) -> dict[int, _Place]:
    """Return the places of rows by their numbers, of which some have known ids."""
    dialect = connection.dialect.name
    ids, others = [], []
    for number in numbers:
        if number in id_of:
            ids.append(id_of[number])
        else:
            others.append(number)
    places: dict[int, _Place] = {}
    for statement, name, wanted in (
        (_PLACES_BY_ID[dialect], "ids", ids),
        (_PLACES_BY_NUMBER[dialect], "numbers", others),  # takes twice as long
    ):
        if wanted:
            parameters = {"in_owner": owner, name: _list_parameter(dialect, wanted)}
            rows = await connection.execute(statement, parameters)
            places |= {place.sequence: place for place in starmap(_Place, rows.all())}
    return places


async def _read_span(
    connection: AsyncConnection,
    statement: Select[int],
    span: tuple[datetime, datetime],
    values: Mapping[str, object],
) -> list[int]:
    """Return the numbers of the rows of a span of time, oldest first."""
    begin, until = map(microseconds, span)
    bounds = {**values, "begin_time": begin, "until_time": until}
    rows = await connection.execute(statement, bounds)
    return [number for (number,) in rows.all()]


async def _read_statistics(
    connection: AsyncConnection, owner: str, terms: Sequence[str], scope_keys: Sequence[int]
) -> TermStatistics:
    keys = IndexKeys(owner)
    term_keys = keys(terms)
    dialect = connection.dialect.name
    wanted = _list_parameter(dialect, [*term_keys, keys.every_row, *scope_keys])
    rows = await connection.execute(_COUNTS[dialect], {"in_owner": owner, "terms": wanted})
    counts: dict[int, int] = dict(rows.all())
    total = counts.get(keys.every_row, 0)
    return TermStatistics(
        rows=total,
        scope=min((counts.get(key, 0) for key in scope_keys), default=total),
        having={key: counts[key] for key in term_keys if key in counts},
    )


#: The position that all rows of the result precede.
_END: Final = tuple_(
    bindparam("end_time", type_=BigInteger), bindparam("end_sequence", type_=BigInteger)
)
#: The columns of a `_Place`.
_PLACE: Final = (
    *POSITION,
    messages.c.owner_tokens,
    messages.c.conversation_tokens,
    messages.c.printed_tokens,
)


def _looked_up(
    rows: Select[*Ts], key: Column[T], name: str, kind: type[TypeEngine[T]]
) -> Mapping[str, Select[*Ts]]:
    """Return statements for the rows, at most one each, with the keys in the parameter ``name``.

    In Postgres lateral and limited, so that each lookup uses an index. For many keys at once, a
    planner would rather read all rows of an owner.
    """
    keys = func.unnest(bindparam(name, type_=ARRAY(kind)))
    wanted = keys.table_valued(column("wanted", kind)).render_derived(name)
    looked_up = rows.where(key == wanted.c.wanted).limit(1).lateral("looked_up")
    return {
        "postgresql": select(*looked_up.c).select_from(wanted.join(looked_up, true())),
        "sqlite": rows.where(key.in_(select(_json_each(name).c.value))),
    }


def _json_each(name: str) -> TableValuedAlias:
    return func.json_each(bindparam(name)).table_valued("value")


def _list_parameter(dialect: str, values: Sequence[object]) -> object:
    """Return the parameter of a statement that `_looked_up` returned."""
    return json.dumps(values) if dialect == "sqlite" else values


#: The conversation of the row with the id ``row_id``, the rows up to it by scope, and its place; by
#: the key of the table, whatever a planner knows of the conversation.
_LAST_ROW: Final = select(
    messages.c.conversation_id, messages.c.owner_rows, messages.c.conversation_rows, *_PLACE
).where(OWNED, messages.c.id == bindparam("row_id"))
#: How many of an owner's rows have each of the ``terms``.
_COUNTS: Final = _looked_up(
    select(term_counts.c.term, term_counts.c.rows).where(owned(term_counts)),
    term_counts.c.term,
    "terms",
    BigInteger,
)
#: The places of the owner's rows with the ``ids``, and of those with the ``numbers``.
_PLACES_BY_ID: Final = _looked_up(select(*_PLACE).where(OWNED), messages.c.id, "ids", Text)
_PLACES_BY_NUMBER: Final = _looked_up(
    select(*_PLACE)
    .select_from(searched)
    .join(
        messages, and_(messages.c.owner_key == searched.c.owner_key, messages.c.id == searched.c.id)
    )
    .where(owned(searched)),
    searched.c.sequence,
    "numbers",
    BigInteger,
)
#: The ids and bodies of the owner's rows with the ``ids``.
_BODIES: Final = _looked_up(
    select(messages.c.id, messages.c.body).where(OWNED), messages.c.id, "ids", Text
)


#: A statement for rows that match a query, with parameters of its own.
_Hits = tuple[Select[int, str, Sequence[int]], Mapping[str, str]]


def _postgres_hits(query: IndexQuery, scope_keys: Sequence[int]) -> _Hits:
    single = [searched.c.terms.op("&&")(_array(query.alone))] if query.alone else []
    pairs = [searched.c.terms.op("@>")(_array(pair)) for pair in query.pairs]
    # combined with each condition, so that the index looks for both at once
    in_scope = [searched.c.terms.op("@>")(_array(scope_keys))] if scope_keys else []
    matching = select(searched).where(or_(*(and_(match, *in_scope) for match in (*single, *pairs))))
    # materialized, so that only the index of terms can be used: without statistics the planner
    # would rather read all entries of an owner
    hits = matching.cte("hits").prefix_with("MATERIALIZED").alias("searched")
    newest = (
        select(hits.c.sequence, hits.c.id, hits.c.terms)
        .where(owned(hits))
        .where(tuple_(hits.c.sort_time, hits.c.sequence) < _END)
        .order_by(hits.c.sequence.desc())
        .limit(MAX_FOUND)
    )
    return newest, {}


def _array(keys: Sequence[int]) -> ColumnElement[Any]:
    return bindparam(None, list(keys), type_=ARRAY(BigInteger), unique=True)


_full_text: Final = table("full_text", column("rowid"), column("full_text"))


_FULL_TEXT_HITS: Final = (
    # as it is stored: to read all keys of a row takes twice as long as to look for a few
    select(searched.c.sequence, searched.c.id, type_coerce(searched.c.terms, Text))
    .select_from(_full_text)
    .join(searched, searched.c.number == _full_text.c.rowid)
    .where(_full_text.c.full_text.op("MATCH")(bindparam("expression")))
    # here, so that newer rows, which a build has read already, don't count for the limit
    .where(owned(searched), tuple_(searched.c.sort_time, searched.c.sequence) < _END)
    .order_by(_full_text.c.rowid.desc())
    .limit(MAX_FOUND)
)


def _sqlite_hits(query: IndexQuery, scope_keys: Sequence[int]) -> _Hits:
    # only digits and letters of our own making: nothing in them can change the expression
    matches = [keys_to_words(keys) for keys in (*((key,) for key in query.alone), *query.pairs)]
    expression = " AND ".join([f"({' OR '.join(matches)})", *keys_to_words(scope_keys).split()])
    return _FULL_TEXT_HITS, {"expression": expression}


#: By dialect: the statement for the numbers, ids and keys of the newest rows that match a query and
#: have all keys of the scope, with its own parameters. Others are ``in_owner``, ``end_time`` and
#: ``end_sequence``.
_HITS: Final[Mapping[str, Callable[[IndexQuery, Sequence[int]], _Hits]]] = {
    "postgresql": _postgres_hits,
    "sqlite": _sqlite_hits,
}


#: Returns which of some terms a row has.
_FindKnown = Callable[[Any], frozenset[int]]


def _known_in_keys(terms: Iterable[int]) -> _FindKnown:
    return frozenset(terms).intersection


def _known_in_words(terms: Iterable[int]) -> _FindKnown:
    words = [(term, keys_to_words((term,))) for term in terms]
    # all words have the same length, and blanks between them
    return lambda text: frozenset([term for term, word in words if word in text])


#: By dialect: what finds the terms in what a statement of `_HITS` returns of a row.
_KNOWN_TERMS: Final[Mapping[str, Callable[[Iterable[int]], _FindKnown]]] = {
    "postgresql": _known_in_keys,
    "sqlite": _known_in_words,
}


#: The conditions of a scope on the columns of messages, or of an alias of them.
_Scoped = Callable[[FromClause], Sequence[ColumnElement[bool]]]

_PAIRS: Final = (
    func.unnest(*[bindparam(name, type_=ARRAY(BigInteger)) for name in ("ones", "twos", "indices")])
    .table_valued("one", "two", "index")
    .render_derived("pairs")
)
_JSON_PAIRS: Final = func.json_each(bindparam("pairs")).table_valued("key", "value")
_ONE, _TWO = (func.json_extract(_JSON_PAIRS.c.value, f"$[{index}]") for index in range(2))


def _pair_parameters(dialect: str, pairs: Sequence[tuple[int, int]]) -> Mapping[str, object]:
    """Return the parameters for ranges of totals, or for positions: what is read first is first."""
    if dialect == "sqlite":
        return {"pairs": json.dumps(pairs)}
    ones, twos = zip(*pairs, strict=True)
    return {"ones": list(ones), "twos": list(twos), "indices": list(range(len(pairs)))}


#: The indices of pairs, with the positions of rows around them, and their bodies or ids.
_Near = Select[int, int, int, str]


def _postgres_around(scoped: _Scoped, total: str) -> _Near:
    tokens = messages.c[total]
    inside = tokens.between(_PAIRS.c.one, _PAIRS.c.two)
    # lateral, so that each range is a range of an index, one after the other
    rows = select(*POSITION, messages.c.body).where(
        *scoped(messages), messages.c.pruned == 0, inside
    )
    near = rows.order_by(tokens, *POSITION).limit(LIMIT).lateral("near")
    return (
        select(_PAIRS.c.index, near.c.sort_time, near.c.sequence, near.c.body)
        .select_from(_PAIRS.join(near, true()))
        .where(tuple_(near.c.sort_time, near.c.sequence) < _END)
        .limit(LIMIT)
    )


def _sqlite_around(scoped: _Scoped, total: str) -> _Near:
    inside = and_(
        *scoped(messages),
        messages.c.pruned == 0,
        messages.c[total].between(_ONE, _TWO),
        tuple_(*POSITION) < _END,  # rows without tokens have the total of the row before them
    )
    return (
        select(_JSON_PAIRS.c.key, *POSITION, messages.c.body)
        .select_from(_JSON_PAIRS)
        # an outer join, so that the ranges are read in their order, each by a range of the index.
        # Ranges without a row are left out by a function: SQLite would optimise a comparison to an
        # inner join.
        .join(messages, inside, isouter=True)
        .where(func.ifnull(messages.c.pruned, 1) == 0)
        .limit(LIMIT)
    )


def _postgres_whole(scoped: _Scoped, total: str) -> Select[str]:
    near = _postgres_around(scoped, total).subquery()
    ends = aggregate_order_by(literal(SEPARATOR), near.c.sort_time, near.c.sequence)
    return select(func.string_agg(near.c.body, ends))


def _sqlite_whole(scoped: _Scoped, total: str) -> Select[str]:
    # in the order in which the rows are read: that of the ranges, and of the index within each
    near = _sqlite_around(scoped, total).subquery()
    return select(func.group_concat(near.c.body, literal(SEPARATOR)))


def _postgres_beside(scoped: _Scoped, _total: str) -> _Near:
    beside = union_all(*_rows_beside(scoped, _PAIRS.c.one, _PAIRS.c.two)).lateral("beside")
    return select(_PAIRS.c.index, beside.c.sort_time, beside.c.sequence, beside.c.id).select_from(
        _PAIRS.join(beside, true())
    )


def _sqlite_beside(scoped: _Scoped, _total: str) -> _Near:
    sides = [select(side.subquery().c.id) for side in _rows_beside(scoped, _ONE, _TWO)]
    beside = messages.c.id.in_(union_all(*sides))
    return (
        select(_JSON_PAIRS.c.key, *POSITION, messages.c.id)
        .select_from(_JSON_PAIRS)
        # an outer join as above, or SQLite would read all rows of the owner
        .join(messages, and_(OWNED, beside), isouter=True)
        .where(func.ifnull(messages.c.pruned, 1) == 0)
    )


def _rows_beside(
    scoped: _Scoped, time: ColumnElement[int], number: ColumnElement[int]
) -> Iterator[Select[int, int, str]]:
    """Yield selects of the row at a position with those before it, those after it, and a call.

    The call is the nearest row with one, at the position or before it.
    """
    near = messages.alias("beside")
    position, given = tuple_(near.c.sort_time, near.c.sequence), tuple_(time, number)
    # with ``pruned = 0``, SQLite would choose an index in another order
    shown = select(near.c.sort_time, near.c.sequence, near.c.id).where(
        *scoped(near), near.c.pruned != literal(1)
    )
    order = (near.c.sort_time, near.c.sequence)
    older = shown.where(position <= given).order_by(*(column.desc() for column in order))
    newer = shown.where(position > given, position < _END).order_by(*order)
    for side, count in ((older, ROWS_BEFORE + 1), (newer, ROWS_AFTER)):
        yield side.limit(count).correlate(_PAIRS, _JSON_PAIRS)
    # what a native message has besides its text and the overhead are calls
    calls = (near.c.native_tokens > near.c.tokens + MESSAGE_OVERHEAD).label("calls")
    before = older.add_columns(calls).limit(ROWS_TO_CALL + 1).correlate(_PAIRS, _JSON_PAIRS)
    last = before.subquery()
    yield select(last.c.sort_time, last.c.sequence, last.c.id).where(last.c.calls).limit(1)


def _of_owner(table: FromClause) -> Sequence[ColumnElement[bool]]:
    return (owned(table),)


def _of_conversation(table: FromClause) -> Sequence[ColumnElement[bool]]:
    return owned(table), table.c.conversation_id == bindparam("in_conversation")


_SCOPES: Final[Mapping[str, _Scoped]] = {
    "owner_tokens": _of_owner,
    "conversation_tokens": _of_conversation,
}


def _in_scopes(
    by_dialect: Mapping[str, Callable[[_Scoped, str], T]],
) -> Mapping[tuple[str, str], T]:
    return {
        (dialect, total): around(scoped, total)
        for dialect, around in by_dialect.items()
        for total, scoped in _SCOPES.items()
    }


#: By scope: the numbers of the oldest rows from ``begin_time`` on that precede ``until_time``, and
#: ``end_time`` with ``end_sequence``.
_DATED: Final = {
    total: select(messages.c.sequence)
    .where(
        *scoped(messages),
        messages.c.pruned != literal(1),
        messages.c.sort_time >= bindparam("begin_time", type_=BigInteger),
        messages.c.sort_time < bindparam("until_time", type_=BigInteger),
        tuple_(*POSITION) < _END,
    )
    .order_by(*POSITION)
    .limit(MAX_DATED)
    for total, scoped in _SCOPES.items()
}
#: By dialect and scope: bodies of at most ``limit`` rows before ``end_time`` and ``end_sequence``
#: whose totals are in the ranges of `_pair_parameters`.
_AROUND: Final = _in_scopes({"postgresql": _postgres_around, "sqlite": _sqlite_around})
#: The same for ranges that ascend, as one text, oldest first: the driver takes longer for rows.
_WHOLE: Final = _in_scopes({"postgresql": _postgres_whole, "sqlite": _sqlite_whole})
#: The same for ids of the rows next to the positions of `_pair_parameters`, without a limit.
_BESIDE: Final = _in_scopes({"postgresql": _postgres_beside, "sqlite": _sqlite_beside})
