"""The connections to an SQL database: how they begin, wait and fail."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from service.errors import StoreError

#: Seconds that a transaction waits for another process's to end.
BUSY_SECONDS: Final = 10.0
#: Transactions that read at a time; each connection has a thread of its own.
READERS: Final = 4

T = TypeVar("T")


class Database:
    """A database file, made where there is none; raises `StoreError` for all that fails."""

    def __init__(self, url: str) -> None:
        self.path = sqlite_path(url)
        # Tried here, because the driver leaves a thread behind where it cannot open a file.
        with self._errors(), closing(sqlite3.connect(self.path)):
            pass
        self._engine = _engine(self.path)
        self._writer = self._engine.execution_options(immediate=True)
        # Waiting here is woken at once and in turn, and may be cancelled. SQLite has one writer,
        # for which it would wait by polling.
        self._readers = asyncio.Semaphore(READERS)
        self._writers = asyncio.Semaphore(1)
        self._running: set[asyncio.Task[object]] = set()

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do work in a transaction that sees one state of the database."""
        await self._readers.acquire()
        return await self._to_its_end(self._run(self._engine, work), self._readers)

    async def write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do work in a transaction that no other one can come between, and commit it."""
        await self._writers.acquire()
        return await self._to_its_end(self._run(self._writer, work), self._writers)

    async def close(self) -> None:
        """Close every connection, after the transactions that still run."""
        if self._running:
            await asyncio.wait(self._running)
        with self._errors():
            await self._engine.dispose()

    async def _to_its_end(
        self, transaction: Coroutine[None, None, T], place: asyncio.Semaphore
    ) -> T:
        """Wait for a transaction, which goes on where the waiting is cancelled; free its place.

        A cancelled statement runs on in the driver's thread, and its connection, locks and all,
        lives for as long as a traceback holds the cursor; so none is cancelled.
        """
        task = asyncio.create_task(transaction)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: place.release())
        return await asyncio.shield(task)

    async def _run(self, engine: AsyncEngine, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        with self._errors():
            async with engine.begin() as connection:
                return await work(connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            cause = getattr(error, "orig", None) or error
            raise StoreError(f"{self.path}: {cause}") from error


def sqlite_path(url: str) -> Path:
    """Return the file that ``sqlite:///relative.db`` or ``sqlite:////absolute.db`` names.

    Raises:
        StoreError: The URL names none, or its folder does not exist.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError("the store's URL cannot be read; one is sqlite:///history.db") from error
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(f"no SQL store for {parsed.drivername}: URLs; one is sqlite:///history.db")
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError("the store's URL names no file; one is sqlite:///history.db")
    path = Path(parsed.database)
    if not path.absolute().parent.is_dir():
        raise StoreError(f"{path}: the folder {path.absolute().parent} does not exist")
    return path


def _engine(path: Path) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        # isolation_level None: the driver begins no transactions of its own.
        connect_args={"timeout": BUSY_SECONDS, "isolation_level": None},
        pool_size=READERS + 1,
        max_overflow=0,
        hide_parameters=True,  # they are what users said
    )
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    # Readers and the writer do not block one another. The file keeps this mode; it cannot be set,
    # and SQLite does not wait, while others use a new file: then one of them has set it, or a
    # later connection will. What else may fail here fails again in the first statement.
    with suppress(sqlite3.DatabaseError):
        cursor.execute("PRAGMA journal_mode=WAL")
    # A crash of the machine, unlike one of the process, may lose the last commits; never the file.
    with suppress(sqlite3.DatabaseError):
        cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads before it writes may lose its snapshot: writers begin as such.
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
