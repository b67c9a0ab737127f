"""Transactions on an SQL database: how they wait, end and fail, whatever the database."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.errors import RowRefusedError, SchemaError, StoreError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What `Database` has to know of one kind of database."""

    #: What errors call the database; holds no credentials.
    name: str
    #: Its connections, as those use them that read: a transaction sees one state.
    reader: AsyncEngine
    #: The same, as those use them that write: what an owner's lock guards is read anew after it.
    writer: AsyncEngine
    #: Transactions at a time of each kind; there are connections for all of them.
    readers: int
    writers: int
    #: What the driver raises beside SQLAlchemy's errors.
    errors: tuple[type[Exception], ...]
    #: Says why a transaction failed, in words that hold nothing of what users said.
    cause: Callable[[Exception], str]
    #: Tells whether it failed for what is in a row, and would fail again.
    refused: Callable[[Exception], bool]
    #: Tells whether it failed for tables that are not ours, or not those of their revision.
    misfit: Callable[[Exception], bool]
    #: Whether the driver's error may be shown below ours: it holds nothing that users said.
    chained: bool
    #: Whether opening the store brings the schema up to date; else an operator does.
    upgrades_itself: bool
    #: A statement behind which one transaction at a time changes the schema; none where writers
    #: wait for one another anyway.
    schema_lock: str | None
    #: Asks how many connections there are for all processes; none where there is no such number.
    connections: str | None


class Database:
    """A database; raises `StoreError` for all that fails.

    That is a `RowRefusedError` for a row's fault, and a `SchemaError` for the tables' one.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        # Waiting here is woken at once and in turn, and may be cancelled, unlike in a pool.
        self._readers = asyncio.Semaphore(driver.readers)
        self._writers = asyncio.Semaphore(driver.writers)
        self._running: set[asyncio.Task[object]] = set()
        self._failures: tuple[type[Exception], ...] = (SQLAlchemyError, *driver.errors)

    @property
    def name(self) -> str:
        """Return what errors call it."""
        return self.driver.name

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do work in a transaction that sees one state of the database."""
        await self._readers.acquire()
        return await self._to_its_end(self._run(self.driver.reader, work), self._readers)

    async def write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do work in a transaction, and commit it.

        No other one of the same owner comes between, once the owner is locked.
        """
        await self._writers.acquire()
        return await self._to_its_end(self._run(self.driver.writer, work), self._writers)

    async def close(self) -> None:
        """Close every connection, after the transactions that still run."""
        if self._running:
            await asyncio.wait(self._running)
        with self._errors():
            await self.driver.reader.dispose()

    async def _to_its_end(
        self, transaction: Coroutine[None, None, T], place: asyncio.Semaphore
    ) -> T:
        """Wait for a transaction, which goes on where the waiting is cancelled; free its place.

        A cancelled statement runs on in SQLite's thread, and its connection, locks and all, lives
        for as long as a traceback holds the cursor; so none is cancelled. In Postgres it would
        cost the connection.
        """
        task = asyncio.create_task(transaction)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: place.release())
        task.add_done_callback(_take_error)
        return await asyncio.shield(task)

    async def _run(self, engine: AsyncEngine, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        with self._errors():
            async with engine.begin() as connection:
                return await work(connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            raise self._told(error) from (error if self.driver.chained else None)

    def _told(self, error: Exception) -> StoreError:
        cause = self.driver.cause(error)
        if self.driver.refused(error):
            return RowRefusedError(f"{self.name}: {cause}")
        if self.driver.misfit(error):
            return SchemaError(f"{self.name}: its tables are not those of its revision: {cause}")
        return StoreError(f"{self.name}: {cause}")


def _take_error(task: asyncio.Task[T]) -> None:
    """Take note of an error that nobody waits for any more, or asyncio logs it as a fault."""
    if not task.cancelled():
        task.exception()
