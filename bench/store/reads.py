"""How many rows a build reads, as the databases count them."""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.databases import open_database
from service.adapters.sql.history_search import SEPARATOR

#: The statements to the driver, with their values.
Asked = tuple[str, Any]


@contextmanager
def recorded() -> Iterator[list[Asked]]:
    """Record the statements of engines, and of SQLite's connections that are opened meanwhile."""
    asked: list[Asked] = []

    def note(*reported: Any) -> None:  # noqa: ANN401 - SQLAlchemy's six arguments, of which two
        asked.append((reported[2], tuple(reported[3])))

    class Noting(sqlite3.Connection):
        def execute(self, text: str, values: Any = ()) -> sqlite3.Cursor:  # noqa: ANN401 - any
            asked.append((text, values))
            return super().execute(text, values)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=Noting)):
            yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def statements(build: Callable[[], Awaitable[object]]) -> list[Asked]:
    """Return the store's statements for a builder's first build.

    Raises:
        RuntimeError: There are none.
    """
    with recorded() as asked:
        await build()
    selecting = [each for each in asked if each[0].lstrip().startswith("SELECT")]
    if not selecting:
        raise RuntimeError("no statement of the build was recorded")
    return selecting


async def postgres_rows(url: str, asked: list[Asked]) -> int:
    """Return the rows that Postgres reads for some statements, those that it drops included."""
    database = open_database(url)

    async def explain(connection: AsyncConnection) -> list[Any]:
        reported = [
            await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
            for text, values in asked
        ]
        return [each.scalar_one() for each in reported]

    try:
        found = await database.read(explain)
    finally:
        await database.aclose()
    plans = [json.loads(plan) if isinstance(plan, str) else plan for plan in found]
    return round(sum(_rows(node) for (plan,) in plans for node in _nodes(plan["Plan"])))


def sqlite_rows(file: Path, asked: list[Asked]) -> tuple[int, int]:
    """Return the rows that SQLite gives for some statements, and the steps of its machine.

    SQLite counts no rows that it reads and drops, but they would cost steps.
    """
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(file)) as database:
        database.set_progress_handler(step, 1)
        given = [row for each in asked for row in database.execute(*each)]
        # one row may have the texts of several
        joined = sum(str(row[0]).count(SEPARATOR) for row in given)
        return len(given) + joined, steps


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _rows(node: Mapping[str, Any]) -> float:
    if not node["Node Type"].endswith("Scan") or "Relation Name" not in node:
        return 0
    dropped = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    rows: float = (node["Actual Rows"] + dropped) * node["Actual Loops"]
    return rows
