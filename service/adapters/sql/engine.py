"""Transactions on an SQL database: concurrency, cancellation and errors, for every database."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.adapters.sql.local import LocalReader, Work
from service.errors import SchemaError, StoreError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The differences of one kind of database that `Database` needs."""

    #: The database's name in errors; holds no credentials.
    name: str
    #: Its connections begin and end no transactions themselves.
    engine: AsyncEngine
    #: Reads a file; None for a server.
    local: LocalReader | None
    #: Begins a transaction that only reads, and sees one state of the database.
    begin_read: str
    #: Begins a transaction that writes; after locking an owner it sees what was committed before.
    begin_write: str
    #: Follows either, and makes the transaction read ranges of indexes whatever the statistics;
    #: empty where the planner does so anyway.
    by_index: str
    #: How many transactions of each kind run at a time; there are connections for all of them.
    readers: int
    writers: int
    #: Exceptions that the driver raises besides SQLAlchemy's.
    errors: tuple[type[Exception], ...]
    #: Returns the error that a failure is, and its cause in words that quote no stored text:
    #: `RowRefusedError` for a row's content, which would fail again, `SchemaError` for tables that
    #: are not ours, or not those of their revision, else `StoreError`.
    explain: Callable[[Exception], tuple[type[StoreError], str]]
    #: Whether the driver's error may be chained to ours: it quotes no stored text.
    chained: bool
    #: Whether opening the store upgrades the schema; otherwise an operator does.
    upgrades_itself: bool
    #: A statement that lets one transaction at a time change the schema; None where writers wait
    #: for each other anyway.
    schema_lock: str | None
    #: A query for the number of connections that the server offers to all processes; None where
    #: there is no such limit.
    connections: str | None


class Database:
    """A database that raises `StoreError` for every failure.

    A row that can't be stored raises `RowRefusedError`, unexpected tables raise `SchemaError`.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.name = driver.name
        # Unlike the pool's, these queues are first in, first out, and waiting can be cancelled.
        self._readers = asyncio.Semaphore(driver.readers)
        self._writers = asyncio.Semaphore(driver.writers)
        self._running: set[asyncio.Task[object]] = set()
        self._failures: tuple[type[Exception], ...] = (SQLAlchemyError, *driver.errors)

    async def read(self, work: Work[T], *, by_index: bool = False, at_once: bool = False) -> T:
        """Do work in a transaction that sees one state of the database.

        With ``by_index`` its statements are planned for the indexes that they are written for,
        whatever the statistics: for those that fetch rows by their ids, or write or sort ranges.
        With ``at_once`` the work is one for `LocalReader`: of a file it is mostly done in the event
        loop's thread, where no timeout reaches it, but which gives it up if it is slow. Otherwise
        each statement would need several steps of another thread.
        """
        begin = self.driver.begin_read + (self.driver.by_index if by_index else "")
        local = self.driver.local if at_once else None
        if local:
            with self._errors():
                if done := local.read_at_once(begin, work):
                    return done[0]
        await self._readers.acquire()
        reading = asyncio.to_thread(self._read_locally, local, begin, work) if local else None
        return await self._finish(reading or self._run(begin, work), self._readers)

    async def write(self, work: Work[T], *, by_index: bool = False) -> T:
        """Do work in a transaction, and commit it; ``by_index`` is as for `read`.

        Once the transaction has locked an owner, no other one changes that owner's data.
        """
        await self._writers.acquire()
        begin = self.driver.begin_write + (self.driver.by_index if by_index else "")
        return await self._finish(self._run(begin, work), self._writers)

    async def aclose(self) -> None:
        """Close all connections, after the transactions that still run."""
        if self._running:
            await asyncio.wait(self._running)
        with self._errors():
            await self.driver.engine.dispose()
            if self.driver.local:
                self.driver.local.close()

    async def _finish(self, transaction: Coroutine[None, None, T], slot: asyncio.Semaphore) -> T:
        """Wait for a transaction, then release its slot; cancelling the wait doesn't cancel it.

        A cancelled statement runs on in SQLite's thread, and its connection, locks and all, lives
        for as long as a traceback holds the cursor; so none is cancelled. In Postgres it would
        cost the connection.
        """
        task = asyncio.create_task(transaction)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: slot.release())
        # an error that nobody waits for any more is retrieved, or asyncio would log it as a fault
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    async def _run(self, begin: str, work: Work[T]) -> T:
        """Begin a transaction in one round trip, work in it, and commit it or roll it back."""
        with self._errors():
            async with self.driver.engine.begin() as connection:
                # Any: the drivers have no common type
                driver: Any = (await connection.get_raw_connection()).driver_connection
                try:
                    await driver.execute(begin)
                    result = await work(connection)
                    await driver.execute("COMMIT")
                except BaseException:
                    try:
                        await driver.execute("ROLLBACK")
                    except self._failures:  # the first error is the one to raise
                        await connection.invalidate()  # the pool must not reuse it
                    raise
                return result

    def _read_locally(self, local: LocalReader, begin: str, work: Work[T]) -> T:
        """Do what `_run` does, in the calling thread."""
        with self._errors():
            return local.read(begin, work)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            kind, cause = self.driver.explain(error)
            if kind is SchemaError:
                cause = f"its tables are not those of its revision: {cause}"
            chained = error if self.driver.chained else None
            raise kind(f"{self.name}: {cause}") from chained
