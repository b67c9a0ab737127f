"""The schema's revisions: bring a database to the newest one, and tell which one it has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.connections import warn_of_pool
from service.adapters.sql.engine import Database
from service.adapters.sql.indexing import index_stored, is_current, is_indexed, reindex_stored
from service.adapters.sql.opening import DEFAULTS, is_missing, open_database
from service.adapters.sql.schema import metadata
from service.config.store import StoreSettings
from service.errors import SchemaError

_MIGRATIONS: Final = Path(__file__).with_name("migrations")
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
        await database.write(lambda connection: connection.run_sync(_upgrade, database))
        await index_stored(database)


async def current(url: str, limits: StoreSettings = DEFAULTS) -> str | None:
    """Return the revision that a database has; None where there is no database or no schema.

    Raises:
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if is_missing(url):  # to look must not create it
        return None
    async with opened(url, limits) as database:
        return await database.read(lambda connection: connection.run_sync(_revision))


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
        differences = await database.read(_all_differences)
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


async def require_newest(database: Database) -> None:
    """Raise `SchemaError` unless a database has the newest revision."""
    found = await database.read(lambda connection: connection.run_sync(_revision))
    if found is None:
        raise SchemaError(f"{database.name}: it has no schema yet: run `ctxb db upgrade`")
    _require_known(found, database)
    if found != newest():
        raise SchemaError(
            f"{database.name}: its schema is at revision {found}, which is older than {newest()}:"
            " run `ctxb db upgrade`"
        )


def newest() -> str:
    """Return the newest revision that this program knows."""
    return str(_scripts().get_current_head())


@asynccontextmanager
async def opened(url: str, limits: StoreSettings) -> AsyncIterator[Database]:
    """Open a database for one question or piece of work; raises as `open_database` does."""
    database = open_database(url, limits)
    try:
        yield database
    finally:
        await database.close()


def _upgrade(connection: Connection, database: Database) -> None:
    if database.driver.schema_lock:
        connection.exec_driver_sql(database.driver.schema_lock)
    found = _revision(connection)
    if found is not None:
        _require_known(found, database)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    try:
        return MigrationContext.configure(connection).get_current_revision()
    except CommandError as error:
        raise SchemaError("the table alembic_version names several revisions") from error


def _require_known(revision: str, database: Database) -> None:
    try:
        _scripts().get_revision(revision)
    except CommandError as error:
        raise SchemaError(
            f"{database.name}: its schema is at revision {revision}, which this version of the"
            f" program does not know (its newest is {newest()}): run a newer version"
        ) from error


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
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
