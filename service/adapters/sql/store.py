"""History and profiles in an SQL database: SQLite, in a file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.adapters.sql.engine import Database
from service.adapters.sql.history import SqlHistory
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.profiles import SqlProfiles
from service.adapters.sql.summaries import SqlSummaries
from service.adapters.stores import Clock, Stores
from service.ports import TokenCounter


@asynccontextmanager
async def open_sql_store(url: str, counter: TokenCounter, clock: Clock) -> AsyncIterator[Stores]:
    """Open a database, brought to the newest schema; ``clock`` times rows without a time.

    Raises:
        StoreError: The URL cannot be used, or the database cannot be opened or upgraded.
    """
    await upgrade(url)
    database = Database(url)
    try:
        history = SqlHistory(database, counter, clock)
        yield Stores(
            history=history,
            profiles=SqlProfiles(database),
            summaries=SqlSummaries(database, clock),
        )
    finally:
        await database.close()
