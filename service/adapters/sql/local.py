"""Reading an SQLite file by the driver alone, in the thread of the event loop if that is quick.

A build reads three times, a few rows each. Steps of another thread took a tenth of a build over
20,000 rows, and SQLAlchemy's pool, connections and results another; here it only compiles the
statements, once.
"""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeVar, cast

from sqlalchemy import ClauseElement, Dialect
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

#: The bits of SQLite's codes for errors that say what failed; others say why.
PRIMARY_CODE: Final = 0xFF

#: The most statements that are kept as SQL; there are about a dozen.
MAX_COMPILED: Final = 64
#: The seconds after which a read in the event loop's thread is given up, and begins again in
#: another thread; fitting a context occupies the event loop for as long.
SLOW_SECONDS: Final = 0.01
#: The reads after a slow one that are in other threads, too: those of a build at first, as it may
#: have been a pause of the process. Each slow read doubles them, each quick one takes one off. If a
#: tenth or more are slow, the event loop waits for about one read of a hundred.
LEAST_IN_THREADS: Final = 3
MOST_IN_THREADS: Final = 32 * LEAST_IN_THREADS
#: SQLite's steps between two looks at the time; a row takes 13 to 23 in `bench.store`.
STEPS: Final = 200

_DIALECT: Final = sqlite.dialect(paramstyle="named")

#: Work done on the connection of one transaction.
Work = Callable[[AsyncConnection], Awaitable[T]]


class LocalReader:
    """Reads a file in transactions.

    Their work waits for nothing but its statements, whose results have the methods ``all`` and
    ``first``. Rows are tuples without names, and no parameter is a list.
    """

    def __init__(
        self,
        connect: Callable[[float], sqlite3.Connection],
        wait_seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take what opens a connection for any thread, by the seconds that it waits for a lock."""
        self._connect = connect
        self._quick = _Connections(self._connect_quick)
        self._waiting = _Connections(partial(connect, wait_seconds))
        self._clock = clock
        #: When the read in the event loop's thread is slow.
        self._late = 0.0
        #: The number of reads that are still to be done in other threads, and after a slow one.
        self._in_threads = 0
        self._after_slow = LEAST_IN_THREADS

    def read_at_once(self, begin: str, work: Work[T]) -> tuple[T] | None:
        """Do work in a transaction, in the thread of the event loop; a statement begins it.

        Returns None, with nothing done, if it has to wait for a lock, if it takes too long, or if
        one of the last reads did.

        Raises:
            RuntimeError: The work waits for something else.
        """
        if self._in_threads:
            self._in_threads -= 1
            return None
        self._late = self._clock() + SLOW_SECONDS
        try:
            return (self._quick.read(begin, work),)
        except sqlite3.OperationalError as error:
            # errors of Python's module have no code
            code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
            if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_INTERRUPT):
                raise
            return None
        finally:
            if self._is_late():
                self._in_threads = self._after_slow
                self._after_slow = min(2 * self._after_slow, MOST_IN_THREADS)
            else:
                self._after_slow = max(self._after_slow - 1, LEAST_IN_THREADS)

    def _connect_quick(self) -> sqlite3.Connection:
        connection = self._connect(0.0)
        # ends a statement that returns many rows, or waits for other threads between them
        connection.set_progress_handler(self._is_late, STEPS)
        return connection

    def _is_late(self) -> bool:
        return self._clock() > self._late

    def read(self, begin: str, work: Work[T]) -> T:
        """Do the same in another thread, whatever it waits for."""
        return self._waiting.read(begin, work)

    def close(self) -> None:
        """Close all connections; nothing may be read any more."""
        self._quick.close()
        self._waiting.close()


class _Connections:
    """Connections to a file: as many as threads read at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []

    def read(self, begin: str, work: Work[T]) -> T:
        """Do work in a transaction, in the calling thread."""
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
        """Close all of them."""
        while self._idle:
            self._idle.pop().close()


class _Rows:
    """The part of a `Result` that reading needs; all rows are read at once."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def all(self) -> list[Any]:
        """Return all rows."""
        return self._rows

    def first(self) -> Any:  # noqa: ANN401 - a row
        """Return the first row, or None."""
        return self._rows[0] if self._rows else None


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
        return _Rows(self._connection.execute(sql, {**constants, **(values or {})}).fetchall())

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
    # those that an execution has to give have no value yet
    return str(compiled), {k: v for k, v in compiled.params.items() if v is not None}


def _finish_now(work: Awaitable[T]) -> T:
    """Return the result of work that never has to wait; raises `RuntimeError` if it does."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise RuntimeError("work that is done at once may only wait for its statements")
