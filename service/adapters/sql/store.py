"""History and profiles in an SQL database: SQLite, in a file, or Postgres."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.adapters.sql.connections import warn_of_pool
from service.adapters.sql.history import SqlHistory
from service.adapters.sql.indexing import index_stored, warn_of_terms
from service.adapters.sql.opening import DEFAULTS, open_database
from service.adapters.sql.profiles import SqlProfiles
from service.adapters.sql.revisions import found_in, newest, require_newest
from service.adapters.sql.summaries import SqlSummaries
from service.adapters.stores import Clock, Stores
from service.config.store import StoreSettings
from service.ports import TokenCounter


@asynccontextmanager
async def open_sql_store(
    url: str, counter: TokenCounter, clock: Clock, limits: StoreSettings = DEFAULTS
) -> AsyncIterator[Stores]:
    """Open a database of the newest schema; ``clock`` times rows without a time.

    A file is brought to that schema, others have to be at it.

    Raises:
        ConfigError: The URL cannot be used, or the driver is not installed.
        SchemaError: The schema is not the newest.
        StoreError: The database cannot be opened or upgraded.
    """
    database = open_database(url, limits)
    try:
        if not database.driver.upgrades_itself:
            await require_newest(database)
            await warn_of_pool(database)
        elif await found_in(database) == newest():
            await index_stored(database)
        else:
            from service.adapters.sql.migrate import upgrade  # noqa: PLC0415 - loads Alembic

            await upgrade(url, limits)
        await warn_of_terms(database)
        history = SqlHistory(database, counter, clock)
        yield Stores(
            history=history,
            profiles=SqlProfiles(database),
            summaries=SqlSummaries(database, clock),
        )
    finally:
        await database.close()
