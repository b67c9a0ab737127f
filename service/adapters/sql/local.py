"""Reading an SQLite file in the calling thread, by the driver alone.

A build reads three times, a few rows each. With SQLAlchemy's pool, connections and results, that
took twice as long; here it only compiles the statements, each of them once.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar, cast

from sqlalchemy import ClauseElement, Dialect
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

#: The most statements that are kept as SQL; there are about a dozen.
MAX_COMPILED: Final = 64

_DIALECT: Final = sqlite.dialect(paramstyle="named")


class LocalReader:
    """Reads a file in transactions, with a connection for each thread that does so at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Take what opens a connection, which begins no transactions, for any thread."""
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []

    def read(self, begin: str, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do work that waits for nothing but its statements; a transaction starts with ``begin``.

        The results of statements have the methods ``all`` and ``first``, rows are tuples without
        names, and no parameter is a list.

        Raises:
            RuntimeError: The work waits for something else.
        """
        try:
            connection = self._idle.pop()  # the one whose pages were used last
        except IndexError:
            connection = self._connect()
        try:
            connection.execute(begin)
            result = _finish_now(work(cast("AsyncConnection", _Connection(connection))))
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return result

    def close(self) -> None:
        """Close all connections; no thread may read."""
        while self._idle:
            self._idle.pop().close()


class _Rows:
    """The part of a `Result` that reading needs."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.all = cursor.fetchall
        self.first = cursor.fetchone


class _Connection:
    """The part of an `AsyncConnection` that reading needs."""

    dialect: Final[Dialect] = _DIALECT

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def execute(
        self, statement: ClauseElement, values: Mapping[str, object] | None = None
    ) -> _Rows:
        """Execute a statement."""
        sql, constants = _compile(statement)
        return _Rows(self._connection.execute(sql, {**constants, **(values or {})}))

    async def scalar(
        self, statement: ClauseElement, values: Mapping[str, object] | None = None
    ) -> object:
        """Return the first value of a statement's first row."""
        row = (await self.execute(statement, values)).first()
        return None if row is None else row[0]


@lru_cache(maxsize=MAX_COMPILED)
def _compile(statement: ClauseElement) -> tuple[str, Mapping[str, object]]:
    """Return the SQL of a statement, and the constants that are parameters of it."""
    compiled = statement.compile(dialect=_DIALECT)
    return str(compiled), compiled.params


def _finish_now(work: Awaitable[T]) -> T:
    """Return the result of work that never has to wait; raises `RuntimeError` if it does."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise RuntimeError("work that is done at once may only wait for its statements")
