"""Long histories, put into a database at once: as `append` would leave them, totals and all."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, Index, Insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.conversation import conversation
from formatters.model import Row
from service.adapters.rows import Record, read_records
from service.adapters.sql.engine import Database
from service.adapters.sql.opening import open_database
from service.adapters.sql.schema import insert, messages, owners
from service.adapters.sql.store import open_sql_store
from service.adapters.tokens.tokenizers import TiktokenCounter

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


class Remembering:
    """Counts each text once."""

    name = TOKENIZER
    exact = True

    def __init__(self) -> None:
        self.count = lru_cache(maxsize=None)(TiktokenCounter(TOKENIZER).count)


def history(size: int) -> Iterator[list[Row]]:
    """Yield so many rows, oldest first, a minute apart, in batches."""
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


async def load(url: str, size: int, counter: Remembering) -> float:
    """Fill a database of the newest schema that is empty; returns the seconds that it took."""
    began = time.perf_counter()
    database = open_database(url)
    try:
        await database.write(lambda connection: _load(connection, size, counter))
        await _analyze(database)
    finally:
        await database.close()
    return time.perf_counter() - began


async def check(url: str, size: int, counter: Remembering) -> None:
    """Raise unless the totals of a loaded history are the sums over its rows."""
    async with open_sql_store(url, counter, lambda: NEWEST) as stores:
        before = await stores.history.stats(OWNER)
        tokens = sum(
            record.printed_tokens
            for batch in history(size)
            for record in read_records(batch, None, counter)
        )
        if (before.rows, before.tokens) != (size, tokens):
            raise RuntimeError(f"{size} rows with {tokens} tokens were loaded as {before}")


async def stored(url: str) -> Sequence[tuple[Any, ...]]:
    """Return all columns of all rows of a small database, in order."""
    database = open_database(url)
    try:
        found = await database.read(
            lambda connection: connection.execute(select(messages).order_by(messages.c.sequence))
        )
        return [tuple(row) for row in found]
    finally:
        await database.close()


async def append(url: str, size: int, counter: Remembering) -> None:
    """Fill an empty database as the service does."""
    async with open_sql_store(url, counter, lambda: NEWEST) as stores:
        for batch in history(size):
            await stores.history.append(OWNER, batch)


async def _load(connection: AsyncConnection, size: int, counter: Remembering) -> None:
    indexes: set[Index] = messages.indexes
    await connection.run_sync(_each, "drop", indexes)
    await connection.execute(insert(owners), {"owner_key": OWNER, "last_sequence": size})
    placing = _Placing()
    for batch in history(size):
        rows = [placing.next(record) for record in read_records(batch, None, counter)]
        await _copy(connection, rows)
    await connection.run_sync(_each, "create", indexes)


def _each(connection: Connection, change: str, indexes: set[Index]) -> None:
    for index in indexes:
        getattr(index, change)(connection)


class _Placing:
    """Gives out sequence numbers and running totals, in the order of the rows."""

    def __init__(self) -> None:
        self._rows = 0
        self._tokens = 0
        self._of: dict[str | None, tuple[int, int]] = {}

    def next(self, record: Record) -> dict[str, object]:
        self._rows += 1
        self._tokens += record.printed_tokens
        rows, tokens = self._of.get(record.conversation_id, (0, 0))
        totals = self._of[record.conversation_id] = (rows + 1, tokens + record.printed_tokens)
        return {
            "owner_key": OWNER,
            "id": record.id,
            "conversation_id": record.conversation_id,
            "sort_time": record.written_at,
            "sequence": self._rows,
            "tokenizer": TOKENIZER,
            "tokens": record.tokens,
            "printed_tokens": record.printed_tokens,
            "owner_rows": self._rows,
            "owner_tokens": self._tokens,
            "conversation_rows": totals[0],
            "conversation_tokens": totals[1],
            "body": record.body,
            "pruned": 0,
        }


async def _copy(connection: AsyncConnection, rows: Sequence[dict[str, object]]) -> None:
    """Put rows into the table: by COPY into Postgres, which reads ten times as many a second."""
    if connection.dialect.name == "postgresql":
        driver: Any = (await connection.get_raw_connection()).driver_connection
        records = [tuple(row.values()) for row in rows]
        await driver.copy_records_to_table(messages.name, records=records, columns=list(rows[0]))
        return
    statement: Insert = insert(messages)
    await connection.execute(statement, rows)


async def _analyze(database: Database) -> None:
    """Let Postgres know its tables, as it would by itself within a minute."""
    if not database.driver.upgrades_itself:
        await database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))
