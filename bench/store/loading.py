"""Long histories, put into a database at once: as `append` would leave them, totals and all."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any, Final

from sqlalchemy import Connection, Index, Insert, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from bench.conversation import conversation
from formatters.model import Row
from service.adapters.sql.databases import open_database
from service.adapters.sql.queries import ChangedRow, RowTerms, count_keys, index_entries
from service.adapters.sql.schema import insert, messages, owners, searched, term_counts
from service.adapters.sql.store import open_sql_store
from service.adapters.store_records import microseconds, read_records, to_json
from service.adapters.tokens.tokenizers import TiktokenCounter, TiktokenTokenizers

#: Whose history it is.
OWNER: Final = "the owner"
#: Conversations that the history is spread over.
CONVERSATIONS: Final = 4
#: Rows with texts of their own; the history repeats them.
TEXTS: Final = 1_000
#: Rows that go to the database at a time.
BATCH: Final = 20_000
#: The newest row is as old as that.
NEWEST: Final = datetime(2025, 12, 1, tzinfo=UTC)
TOKENIZER: Final = "o200k_base"
#: The columns of a stored row, in the store's order.
_REVISION: Final = import_module("service.adapters.sql.migrations.versions.0005_search")
_DROP: Final = {
    "postgresql": ("DROP INDEX searched_by_term",),
    "sqlite": (
        "DROP TABLE full_text",
        "DROP TRIGGER searched_added",
        "DROP TRIGGER searched_deleted",
    ),
}
_FILL: Final = {
    "postgresql": (),
    "sqlite": ("INSERT INTO full_text (full_text) VALUES ('rebuild')",),
}
FIELDS: Final = ("id", "run_id", "role", "content", "timestamp", "metadata", "conversation_id")


def history(size: int) -> Iterator[list[Row]]:
    """Yield n rows, oldest first, a minute apart, in batches."""
    texts = conversation(TEXTS)
    for start in range(0, size, BATCH):
        yield [
            {
                **texts[number % TEXTS],
                "id": f"m{number}",
                "run_id": f"r{number // 2}",
                "conversation_id": f"c{number % CONVERSATIONS}",
                "timestamp": (NEWEST - timedelta(minutes=size - number)).isoformat(),
            }
            for number in range(start, min(start + BATCH, size))
        ]


async def load(url: str, size: int) -> float:
    """Fill a database of the newest schema that is empty; returns the seconds that it took."""
    began = time.perf_counter()
    if url.startswith("sqlite:"):
        await _load_file(url, size)
        return time.perf_counter() - began
    database = open_database(url)
    try:
        await database.write(lambda connection: _load(connection, size))
    finally:
        await database.aclose()
    return time.perf_counter() - began


async def _load_file(url: str, size: int) -> None:
    """Fill a file without a journal, which the service sets up again when it opens it."""
    engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:", 1))
    async with engine.connect() as connection:
        for pragma in ("journal_mode=OFF", "synchronous=OFF"):
            await connection.exec_driver_sql(f"PRAGMA {pragma}")
        await _load(connection, size)
        await connection.commit()
    await engine.dispose()


async def check(url: str, size: int) -> None:
    """Raise unless the totals of a loaded history are the database's own sums over its rows."""
    sums = select(func.count(), func.sum(messages.c.printed_tokens))
    database = open_database(url)
    try:
        found = await database.read(lambda connection: connection.execute(sums))
    finally:
        await database.aclose()
    rows, tokens = found.one()
    async with open_sql_store(
        url, partial(TiktokenTokenizers().counter, TOKENIZER), lambda: NEWEST
    ) as stores:
        stats = await stores.history.stats(OWNER)
    if not size == rows == stats.rows or tokens != stats.tokens:
        raise RuntimeError(f"{rows} rows with {tokens} tokens are reported as {stats}")


async def stored(url: str) -> Sequence[tuple[Any, ...]]:
    """Return all columns of all rows of a small database, with what they are found by."""
    database = open_database(url)
    queries = (
        select(messages).order_by(messages.c.sequence),
        select(searched).order_by(searched.c.sequence),
        select(term_counts).order_by(term_counts.c.term),
    )

    async def all_rows(connection: AsyncConnection) -> list[tuple[Any, ...]]:
        return [tuple(row) for query in queries for row in await connection.execute(query)]

    try:
        return await database.read(all_rows)
    finally:
        await database.aclose()


async def append(url: str, size: int) -> None:
    """Fill an empty database as the service does."""
    async with open_sql_store(
        url, partial(TiktokenTokenizers().counter, TOKENIZER), lambda: NEWEST
    ) as stores:
        for batch in history(size):
            await stores.history.append(OWNER, batch)


async def _load(connection: AsyncConnection, size: int) -> None:
    indexes: set[Index] = messages.indexes
    await connection.run_sync(_each, "drop", indexes)
    await connection.execute(insert(owners), {"owner_key": OWNER, "last_sequence": size})
    placing, counts = _Placing(), Counter[int]()
    await _without_index(connection)
    for batch in history(size):
        placed = [placing.next(row) for row in batch]
        found = index_entries(OWNER, map(placing.found, placed))
        counts += count_keys(OWNER, (each["terms"] for each in found))
        await _copy(connection, messages, placed)
        await _copy(connection, searched, found)
    values = [{"owner_key": OWNER, "term": term, "rows": n} for term, n in counts.items()]
    await connection.execute(insert(term_counts), values)
    await connection.run_sync(_each, "create", indexes)
    await _with_index(connection)


async def _without_index(connection: AsyncConnection) -> None:
    """Drop what keeps the index of terms in step row by row."""
    for statement in _DROP[connection.dialect.name]:
        await connection.exec_driver_sql(statement)


async def _with_index(connection: AsyncConnection) -> None:
    """Make the index of terms as the revisions do, and fill it from its table at once."""
    made = _REVISION.INDEX[connection.dialect.name]
    for statement in (*made, *_FILL[connection.dialect.name]):
        await connection.exec_driver_sql(statement)


def _each(connection: Connection, change: str, indexes: set[Index]) -> None:
    for index in indexes:
        getattr(index, change)(connection)


class _Placing:
    """Gives out sequence numbers and running totals, in the order of the rows.

    Texts are counted once each, which is what makes it quick.
    """

    def __init__(self) -> None:
        records = read_records(conversation(TEXTS), None, TiktokenCounter(TOKENIZER))
        self._counts = [(r.tokens, r.printed_tokens, r.native_tokens) for r in records]
        self._terms = [record.terms for record in records]
        self._totals: dict[str, tuple[int, int, int]] = {}

    def next(self, row: Row) -> dict[str, object]:
        """Return a row as the table has it."""
        number = self._totals.get("", (0, 0, 0))[0]
        tokens, printed, native = self._counts[number % TEXTS]
        conversation_id, timestamp = str(row["conversation_id"]), str(row["timestamp"])
        of_owner = self._add("", printed, native)
        of_conversation = self._add(conversation_id, printed, native)
        fields = {name: row[name] for name in FIELDS}
        return {
            "owner_key": OWNER,
            "id": row["id"],
            "conversation_id": conversation_id,
            "sort_time": microseconds(datetime.fromisoformat(timestamp)),
            "sequence": number + 1,
            "tokenizer": TOKENIZER,
            "tokens": tokens,
            "printed_tokens": printed,
            "owner_rows": of_owner[0],
            "owner_tokens": of_owner[1],
            "conversation_rows": of_conversation[0],
            "conversation_tokens": of_conversation[1],
            "body": to_json(fields, "/row"),
            "pruned": 0,
            "native_tokens": native,
            "owner_native": of_owner[2],
            "conversation_native": of_conversation[2],
        }

    def found(self, row: dict[str, Any]) -> RowTerms:
        """Return what a row of the table is found by."""
        numbers = row["sort_time"], row["sequence"]
        changed = ChangedRow(row["conversation_id"], *numbers, row["id"])
        return changed, self._terms[(row["sequence"] - 1) % TEXTS]

    def _add(self, scope: str, printed: int, native: int) -> tuple[int, int, int]:
        rows, before, native_before = self._totals.get(scope, (0, 0, 0))
        self._totals[scope] = (rows + 1, before + printed, native_before + native)
        return self._totals[scope]


async def _copy(
    connection: AsyncConnection, table: Table, rows: Sequence[dict[str, object]]
) -> None:
    """Put rows into a table: by COPY into Postgres, which reads ten times as many per second."""
    if connection.dialect.name == "postgresql":
        driver: Any = (await connection.get_raw_connection()).driver_connection
        records = [tuple(row.values()) for row in rows]
        await driver.copy_records_to_table(table.name, records=records, columns=list(rows[0]))
        return
    statement: Insert = insert(table)
    await connection.execute(statement, rows)
