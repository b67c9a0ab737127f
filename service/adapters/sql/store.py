"""Opens the stores of an SQL database, and holds the profiles."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from sqlalchemy import delete, select

from service.adapters.sql.database_state import (
    find_revision,
    newest_revision,
    require_newest,
    warn_of_pool,
)
from service.adapters.sql.database_urls import DEFAULTS, open_database
from service.adapters.sql.engine import Database
from service.adapters.sql.history_store import SqlHistory
from service.adapters.sql.schema import insert, key, profiles
from service.adapters.sql.search_index import complete_index, warn_if_outdated
from service.adapters.sql.summary_store import SqlSummaries
from service.adapters.store_records import checked_owner, to_json
from service.config.endpoints import StoreSettings
from service.ports.services import TokenCounter
from service.ports.stores import Clock, Stores


@asynccontextmanager
async def open_sql_store(
    url: str, counter: TokenCounter, clock: Clock, limits: StoreSettings = DEFAULTS
) -> AsyncIterator[Stores]:
    """Open the stores of a database; ``clock`` gives the time of rows that have none.

    SQLite files are upgraded to the newest schema, other databases have to be at it.

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
        elif await find_revision(database) == newest_revision():
            await complete_index(database)
        else:
            from service.adapters.sql.migrate import upgrade  # noqa: PLC0415 - loads Alembic

            await upgrade(url, limits)
        await warn_if_outdated(database)
        yield Stores(
            history=SqlHistory(database, counter, clock),
            profiles=SqlProfiles(database),
            summaries=SqlSummaries(database, clock),
        )
    finally:
        await database.close()


class SqlProfiles:
    """The `ProfileStore` in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile, or an empty one."""
        owner = key(checked_owner(owner_key))
        query = select(profiles.c.body).where(profiles.c.owner_key == owner)
        body = await self._database.read(lambda connection: connection.scalar(query))
        profile: dict[str, object] = {} if body is None else json.loads(body)
        return profile

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        owner = key(checked_owner(owner_key))
        put = insert(profiles).values(owner_key=owner, body=to_json(profile, "/profile"))
        put = put.on_conflict_do_update(
            index_elements=[profiles.c.owner_key], set_={"body": put.excluded.body}
        )
        await self._database.write(lambda connection: connection.execute(put))

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        owner = key(checked_owner(owner_key))
        erase = delete(profiles).where(profiles.c.owner_key == owner)
        result = await self._database.write(lambda connection: connection.execute(erase))
        return result.rowcount > 0
