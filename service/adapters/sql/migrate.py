"""The schema's revisions: bring a database to the newest one, and compare it with that."""

from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.engine import Database
from service.adapters.sql.indexing import index_stored, is_current, is_indexed, reindex_stored
from service.adapters.sql.opening import DEFAULTS, is_missing, opened
from service.adapters.sql.postgres import warn_of_pool
from service.adapters.sql.revisions import (
    MIGRATIONS,
    newest,
    require_known,
    require_newest,
    revision_of,
)
from service.adapters.sql.schema import metadata
from service.config.endpoints import StoreSettings
from service.errors import SchemaError

#: Seconds that a revision may take, or wait for another process's: large tables get new indexes.
UPGRADE_SECONDS: Final = 86_400.0

#: What the full text consists of beside tables, which alembic does not compare, and how a database
#: is asked what it has.
_INDEX: Final = {
    "postgresql": {"searched_by_term"},
    "sqlite": {"full_text", "searched_added", "searched_deleted"},
}
_NAMES: Final = {
    "postgresql": "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()",
    "sqlite": "SELECT name FROM sqlite_master",
}


async def upgrade(url: str, limits: StoreSettings = DEFAULTS) -> None:
    """Bring a database to the newest revision; a file is created where there is none.

    All revisions are one transaction: of processes that start together one upgrades, the others
    wait. Rows that a revision has not put into the index of terms follow in small ones, and what
    an upgrade leaves undone the next one does.

    Raises:
        SchemaError: The database is of a newer version of this program, or its tables are not those
            of its revision.
        StoreError: The database cannot be opened, or does not let its tables be made.
    """
    patient = limits.model_copy(update={"statement_timeout_seconds": UPGRADE_SECONDS})
    async with opened(url, patient) as database:
        await database.write(lambda c: c.run_sync(_upgrade, database), by_index=False)
        await index_stored(database)


async def check(url: str, limits: StoreSettings = DEFAULTS) -> str:
    """Return the revision of a database whose tables are those of this program.

    Raises:
        SchemaError: They are not; it says what differs.
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if is_missing(url):
        raise SchemaError("there is no database yet: run `ctxb db upgrade`")
    async with opened(url, limits) as database:
        await require_newest(database)
        await warn_of_pool(database)
        differences = await database.read(_all_differences, by_index=False)
        stale = not differences and not await database.read(is_current)
    if differences:
        raise SchemaError(
            f"{database.name}: the tables are not those of revision {newest()}:"
            f" {'; '.join(differences)}"
        )
    if stale:
        raise SchemaError(
            f"{database.name}: rows are found by terms of another version's rules:"
            " run `ctxb db reindex`"
        )
    return newest()


async def reindex(url: str, limits: StoreSettings = DEFAULTS) -> int:
    """Have all rows found by terms of today's rules; returns how many had others.

    Workers may serve meanwhile. What has been done stays done where this is ended.

    Raises:
        SchemaError: The database has not the newest revision.
        StoreError: It cannot be opened, or fails.
    """
    if is_missing(url):
        raise SchemaError("there is no database yet: run `ctxb db upgrade`")
    async with opened(url, limits) as database:
        await require_newest(database)
        return await reindex_stored(database)


def _upgrade(connection: Connection, database: Database) -> None:
    if database.driver.schema_lock:
        connection.exec_driver_sql(database.driver.schema_lock)
    found = revision_of(connection)
    if found is not None:
        require_known(found, database)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def _all_differences(connection: AsyncConnection) -> list[str]:
    unfinished = [] if await is_indexed(connection) else ["rows are not indexed yet"]
    return [*await connection.run_sync(_differences), *unfinished]


def _differences(connection: Connection) -> list[str]:
    """Return in words what a database lacks of our tables, or has otherwise."""
    context = MigrationContext.configure(connection, opts={"include_object": _is_ours})
    found = set(connection.scalars(text(_NAMES[connection.dialect.name])))
    lacking = [f"add {name}" for name in sorted(_INDEX[connection.dialect.name] - found)]
    return [*(_told(change) for change in compare_metadata(context, metadata)), *lacking]


def _is_ours(_object: object, _name: object, kind: str, reflected: bool, ours: object) -> bool:
    """Leave out what others have added beside our tables, and indexes on them."""
    return not (reflected and ours is None and kind in {"table", "index"})


def _told(change: Any) -> str:  # noqa: ANN401 - tuples and lists of many shapes
    what, *about = change[0] if isinstance(change, list) else change
    names = [getattr(each, "name", each) for each in about]
    return " ".join([what.replace("_", " "), *(str(name) for name in names if _is_name(name))])


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
