"""Find rows of a history by terms: by full text in SQLite, by a GIN index in Postgres."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from formatters.model import Row
from service.adapters.sql.queries import scope
from service.adapters.sql.search_queries import (
    CONVERSATION,
    KNOWN,
    OWNER,
    Places,
    hits,
    stretch_values,
)
from service.adapters.store_records import TermKeys
from service.recall.search import (
    ROWS_PER_HIT,
    Hit,
    RowPosition,
    SearchRequest,
    TermStatistics,
    choose_query,
    rank_hits,
    token_ranges,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is looked for: in what an owner has, or in a conversation; keys of the tables."""

    owner: str
    conversation: str | None

    @property
    def within(self) -> tuple[int, ...]:
        """Return the terms that each of its rows has."""
        keys = TermKeys(self.owner)
        return () if self.conversation is None else (keys.conversation(self.conversation),)


async def search_rows(connection: AsyncConnection, place: Place, asked: SearchRequest) -> list[Row]:
    """Return the rows that are found, with those around them, newest first."""
    told = OWNER if place.conversation is None else CONVERSATION
    keys = scope(place.owner, place.conversation).keys
    named = {"in_owner": place.owner, "name": asked.before}
    end = (await connection.execute(told.end, named)).first()
    known = await _known(connection, place, asked.terms)
    if end is None or not known.having or place.conversation not in (None, end.conversation_id):
        return []
    before = {"end_time": end.sort_time, "end_sequence": end.sequence}
    found = await _hits(connection, place, known, before)
    numbers = rank_hits(found, known, asked.max_rows // ROWS_PER_HIT)
    spots = await _spots(connection, told, place.owner, numbers)
    reached = token_ranges(spots, end.total - end.own)
    if not reached:
        return []
    dialect = connection.dialect.name
    values = {**keys, **before, "limit": asked.max_rows, **stretch_values(dialect, reached)}
    rows = await connection.execute(told.around[dialect], values)
    ordered = sorted(rows, key=lambda row: (row.sort_time, row.sequence), reverse=True)
    return [json.loads(row.body) for row in ordered]


async def _known(connection: AsyncConnection, place: Place, terms: Sequence[str]) -> TermStatistics:
    keys = TermKeys(place.owner)
    asked = keys(terms)
    values = {"in_owner": place.owner, "terms": [*asked, keys.row, *place.within]}
    found = await connection.execute(KNOWN[connection.dialect.name], values)
    counted = {row.term: row.having for row in found}
    rows = counted.get(keys.row, 0)
    return TermStatistics(
        rows=rows,
        scope=min((counted.get(key, 0) for key in place.within), default=rows),
        having={term: counted[term] for term in asked if term in counted},
    )


async def _hits(
    connection: AsyncConnection, place: Place, known: TermStatistics, end: Mapping[str, int]
) -> list[Hit]:
    query = choose_query(known)
    if not (query.alone or query.pairs):
        return []
    statement = hits(connection.dialect.name, query, place.within)
    found = await connection.execute(statement, {"in_owner": place.owner, **end})
    return [Hit(row.sequence, known.having.keys() & row.terms) for row in found]


async def _spots(
    connection: AsyncConnection, places: Places, owner: str, numbers: Sequence[int]
) -> list[RowPosition]:
    asked = places.spots[connection.dialect.name]
    rows = await connection.execute(asked, {"in_owner": owner, "numbers": numbers})
    found = {row.sequence: RowPosition(row.total, row.own) for row in rows}
    return [found[number] for number in numbers if number in found]
