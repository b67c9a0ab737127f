"""Upgrades of a database to the newest revision, comparison with it, and rebuilds of its index."""

from contextlib import aclosing
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.databases import (
    DEFAULTS,
    MIGRATIONS,
    NEWEST,
    missing_file,
    open_database,
    require_known,
    require_newest,
    revision_of,
    warn_of_pool,
)
from service.adapters.sql.engine import Database
from service.adapters.sql.reindexing import complete_index, is_complete, is_current, rebuild_index
from service.adapters.sql.schema import metadata
from service.config.endpoints import StoreSettings
from service.errors import OutdatedTermsError, SchemaError

#: Seconds that a revision may run, or wait for another process's: large tables get new indexes.
UPGRADE_SECONDS: Final = 86_400.0

#: The parts of the search index that Alembic doesn't compare, and queries for those that exist.
_INDEX_PARTS: Final = {
    "postgresql": {"searched_by_term"},
    "sqlite": {"full_text", "searched_added", "searched_deleted"},
}
_NAMES: Final = {
    "postgresql": "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()",
    "sqlite": "SELECT name FROM sqlite_master",
}


async def upgrade(url: str, limits: StoreSettings = DEFAULTS) -> None:
    """Bring a database to the newest revision; a missing file is created.

    All revisions run in one transaction: of processes that start together one upgrades, the others
    wait. Rows that a revision leaves out of the search index are added in small transactions
    afterwards; what an interrupted upgrade leaves undone, the next one does.

    Raises:
        SchemaError: The database is of a newer version of this program, or its tables are not those
            of its revision.
        StoreError: The database cannot be opened, or doesn't allow creating tables.
    """
    patient = limits.model_copy(update={"statement_timeout_seconds": UPGRADE_SECONDS})
    async with aclosing(open_database(url, patient)) as database:
        await database.write(lambda c: c.run_sync(_upgrade, database))
    async with aclosing(open_database(url, patient)) as database:
        await complete_index(database)


async def check(url: str, limits: StoreSettings = DEFAULTS, *, pages: bool = False) -> str:
    """Return the revision of a database whose tables are those of this program.

    With ``pages`` it also reads the whole of a SQLite file, and looks for damage.

    Raises:
        SchemaError: They are not, or a SQLite file is damaged; the message lists the differences.
        OutdatedTermsError: They are, but searches find less until the rows are indexed again.
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if missing_file(url):
        raise SchemaError("there is no database yet: run `ctxb db upgrade`")
    async with aclosing(open_database(url, limits)) as database:
        await require_newest(database)
        await warn_of_pool(database)
        damage = await database.read(_find_damage) if pages else ""
        if damage:
            raise SchemaError(f"{database.name}: the file is damaged, restore a backup: {damage}")
        differences = await database.read(lambda c: c.run_sync(_compare_tables))
        if not await database.read(is_complete):
            differences.append("rows are not indexed yet")
        outdated = not differences and not await database.read(is_current)
    if differences:
        raise SchemaError(
            f"{database.name}: the tables are not those of revision {NEWEST}:"
            f" {'; '.join(differences)}"
        )
    if outdated:
        raise OutdatedTermsError(
            f"{database.name}: the search index was made by the rules of another version:"
            " run `ctxb db reindex`"
        )
    return NEWEST


async def reindex(url: str, limits: StoreSettings = DEFAULTS) -> int:
    """Bring the search index to the current rules; returns how many rows changed.

    Workers may serve meanwhile. An interrupted run continues where it was.

    Raises:
        SchemaError: The database doesn't have the newest revision.
        StoreError: It cannot be opened, or fails.
    """
    if missing_file(url):
        raise SchemaError("there is no database yet: run `ctxb db upgrade`")
    async with aclosing(open_database(url, limits)) as database:
        await require_newest(database)
        return await rebuild_index(database)


async def _find_damage(connection: AsyncConnection) -> str:
    """Return what is wrong with the pages of a SQLite file, or "" without damage."""
    if connection.dialect.name != "sqlite":
        return ""
    found = (await connection.exec_driver_sql("PRAGMA quick_check(1)")).scalar_one()
    *_, last = found.splitlines()  # under a heading
    return "" if last == "ok" else last


def _upgrade(connection: Connection, database: Database) -> None:
    if database.driver.schema_lock:
        connection.exec_driver_sql(database.driver.schema_lock)
    revision = revision_of(connection)
    if revision is not None:
        require_known(revision, database)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _compare_tables(connection: Connection) -> list[str]:
    """Describe what a database lacks of our tables, or has different."""
    context = MigrationContext.configure(connection, opts={"include_object": _is_ours})
    names = set(connection.scalars(text(_NAMES[connection.dialect.name])))
    missing = [f"add {name}" for name in sorted(_INDEX_PARTS[connection.dialect.name] - names)]
    return [*(_describe(change) for change in compare_metadata(context, metadata)), *missing]


def _is_ours(_object: object, _name: object, kind: str, reflected: bool, ours: object) -> bool:
    """Leave out tables and indexes that others have added."""
    return not (reflected and ours is None and kind in {"table", "index"})


def _describe(change: Any) -> str:  # noqa: ANN401 - tuples and lists of many shapes
    what, *subjects = change[0] if isinstance(change, list) else change
    names = [getattr(subject, "name", subject) for subject in subjects]
    names = [name for name in names if isinstance(name, str) and name]
    return " ".join([what.replace("_", " "), *names])
