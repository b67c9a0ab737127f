"""Transactions on an SQL database: concurrency, cancellation and errors, whatever the database."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import RowRefusedError, SchemaError, StoreError

T = TypeVar("T")

#: Work done on the connection of one transaction.
Work = Callable[[AsyncConnection], Awaitable[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What `Database` has to know of one kind of database."""

    #: The database's name in errors; holds no credentials.
    name: str
    #: Begins a transaction that only reads, and sees one state of the database. The argument is
    #: ``by_index``, see `Database.read`.
    begin_read: Callable[[bool], AbstractAsyncContextManager[AsyncConnection]]
    #: Begins a transaction that writes; after locking an owner it sees what was committed before.
    begin_write: Callable[[bool], AbstractAsyncContextManager[AsyncConnection]]
    #: Closes all connections.
    dispose: Callable[[], Awaitable[None]]
    #: How many transactions of each kind run at a time; there are connections for all of them.
    readers: int
    writers: int
    #: Exceptions that the driver raises besides SQLAlchemy's.
    errors: tuple[type[Exception], ...]
    #: Returns why a transaction failed, in words that quote no stored text.
    cause: Callable[[Exception], str]
    #: Returns whether it failed because of a row's content, and would fail again.
    refused: Callable[[Exception], bool]
    #: Returns whether it failed because the tables are not ours, or not those of their revision.
    misfit: Callable[[Exception], bool]
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
        # Unlike the pool's, these queues are first in, first out, and waiting can be cancelled.
        self._readers = asyncio.Semaphore(driver.readers)
        self._writers = asyncio.Semaphore(driver.writers)
        self._running: set[asyncio.Task[object]] = set()
        self._failures: tuple[type[Exception], ...] = (SQLAlchemyError, *driver.errors)

    @property
    def name(self) -> str:
        """Return the database's name in errors."""
        return self.driver.name

    async def read(self, work: Work[T], *, by_index: bool = True) -> T:
        """Do work in a transaction that sees one state of the database.

        With ``by_index`` the database plans statements for the ranges of indexes that they are
        written for, whatever its statistics. Statements that read whole tables go without.
        """
        await self._readers.acquire()
        return await self._finish(self._run(self.driver.begin_read(by_index), work), self._readers)

    async def write(self, work: Work[T], *, by_index: bool = True) -> T:
        """Do work in a transaction, and commit it; statements are planned as in `read`.

        Once the transaction has locked an owner, no other one changes that owner's data.
        """
        await self._writers.acquire()
        return await self._finish(self._run(self.driver.begin_write(by_index), work), self._writers)

    async def close(self) -> None:
        """Close all connections, after the transactions that still run."""
        if self._running:
            await asyncio.wait(self._running)
        with self._errors():
            await self.driver.dispose()

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
        task.add_done_callback(_retrieve_error)
        return await asyncio.shield(task)

    async def _run(
        self, transaction: AbstractAsyncContextManager[AsyncConnection], work: Work[T]
    ) -> T:
        with self._errors():
            async with transaction as connection:
                return await work(connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            raise self._store_error(error) from (error if self.driver.chained else None)

    def _store_error(self, error: Exception) -> StoreError:
        cause = self.driver.cause(error)
        if self.driver.refused(error):
            return RowRefusedError(f"{self.name}: {cause}")
        if self.driver.misfit(error):
            return SchemaError(f"{self.name}: its tables are not those of its revision: {cause}")
        return StoreError(f"{self.name}: {cause}")


def _retrieve_error(task: asyncio.Task[T]) -> None:
    """Retrieve an error that nobody waits for any more, or asyncio would log it as a fault."""
    if not task.cancelled():
        task.exception()
