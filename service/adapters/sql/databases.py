"""Opens databases by the scheme of their URL, and reads their state: revision, size, connections.

Nothing here loads Alembic, which takes long, and is needed for upgrades and comparisons only.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import structlog
from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from service.adapters.sql import DATABASES
from service.adapters.sql.engine import Database, Driver
from service.adapters.sql.sqlite import sqlite_driver, sqlite_path
from service.config.endpoints import StoreSettings
from service.errors import MissingExtraError, SchemaError, StoreError
from service.ports.status import StoreState

log = structlog.get_logger(__name__)

DEFAULTS: Final = StoreSettings()
MIGRATIONS: Final = Path(__file__).with_name("migrations")
#: All revisions that this program knows, oldest first; the names of their files begin with them.
REVISIONS: Final = sorted(file.name[:4] for file in MIGRATIONS.glob("versions/[0-9]*.py"))
NEWEST: Final = REVISIONS[-1]

#: Alembic's own table; not in our metadata, so that it isn't compared with our tables.
_VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String(32)))


def open_database(url: str, limits: StoreSettings = DEFAULTS) -> Database:
    """Return the database at a URL, which the caller closes.

    Raises:
        ConfigError: The driver is not installed.
        StoreError: The URL is not one of an SQL database, or the file cannot be opened.
    """
    return Database(find_driver(url)(url, limits))


def find_driver(url: str) -> Callable[[str, StoreSettings], Driver]:
    """Return what opens the driver of a URL; raises as `open_database` does."""
    if _kind(url) == "sqlite":
        return lambda url, _limits: sqlite_driver(url)
    try:
        from service.adapters.sql.postgres import postgres_driver  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtraError("store.url: Postgres", "postgres") from error
    return postgres_driver


def missing_file(url: str) -> Path | None:
    """Return the file of a URL if it doesn't exist, so that opening would create it."""
    path = sqlite_path(url) if _kind(url) == "sqlite" else None
    return None if path is None or path.exists() else path


def _kind(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise StoreError("store.url cannot be read; one is sqlite:///history.db")
    if scheme not in DATABASES:
        raise StoreError(f"store.url: no SQL store for {scheme}: URLs; one is sqlite:///history.db")
    return DATABASES[scheme]


async def read_revision(url: str, limits: StoreSettings = DEFAULTS) -> str | None:
    """Return the revision of the database at a URL; None if it is missing or has no schema.

    Raises:
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if missing_file(url):  # opening would create it
        return None
    async with aclosing(open_database(url, limits)) as database:
        return await find_revision(database)


async def require_upgraded(url: str, limits: StoreSettings = DEFAULTS) -> None:
    """Raise `SchemaError` for a database that opening the store would upgrade."""
    async with aclosing(open_database(url, limits)) as database:
        if database.driver.upgrades_itself:
            await require_newest(database)


async def require_newest(database: Database) -> None:
    """Raise `SchemaError` unless a database has the newest revision."""
    revision = await find_revision(database)
    if revision is None:
        raise SchemaError(f"{database.name}: it has no schema yet: run `ctxb db upgrade`")
    require_known(revision, database)
    if revision != NEWEST:
        raise SchemaError(
            f"{database.name}: its schema is at revision {revision}, which is older than"
            f" {NEWEST}: run `ctxb db upgrade`"
        )


def require_known(revision: str, database: Database) -> None:
    """Raise `SchemaError` for a revision of a later version of this program."""
    if revision not in REVISIONS:
        raise SchemaError(
            f"{database.name}: its schema is at revision {revision}, which this version of the"
            f" program does not know (its newest is {NEWEST}): run a newer version"
        )


async def find_revision(database: Database) -> str | None:
    """Return the revision of an open database, None if it has no schema."""
    return await database.read(lambda c: c.run_sync(revision_of))


def revision_of(connection: Connection) -> str | None:
    """Return the revision that a connection sees, None without a schema."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    revisions = connection.scalars(select(_VERSION.c.version_num)).all()
    if len(revisions) > 1:
        raise SchemaError("the table alembic_version names several revisions")
    return revisions[0] if revisions else None


#: By dialect, a query for: rows, owners, summaries, bytes, whether these are exact, connections,
#: and the server's time.
_SIZE: Final = {
    "sqlite": """
SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM owners),
  (SELECT count(*) FROM summaries), page_count * page_size, 1, NULL, NULL
FROM pragma_page_count, pragma_page_size""",
    # Counting all rows of a large table takes minutes, so the server's estimates are used. A table
    # that has none yet is small enough to be counted.
    "postgresql": """
WITH tables AS (
  SELECT relname, nullif(reltuples, -1)::bigint AS estimate, pg_total_relation_size(oid) AS size
  FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
)
SELECT
  coalesce((SELECT estimate FROM tables WHERE relname = 'messages'),
    (SELECT count(*) FROM messages)),
  coalesce((SELECT estimate FROM tables WHERE relname = 'owners'), (SELECT count(*) FROM owners)),
  coalesce((SELECT estimate FROM tables WHERE relname = 'summaries'),
    (SELECT count(*) FROM summaries)),
  (SELECT sum(size)::bigint FROM tables), 0,
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  extract(epoch FROM clock_timestamp())::float8""",
}


async def read_size(url: str, limits: StoreSettings) -> StoreState | None:
    """Return the size of the database at a URL; None if it is missing.

    Raises:
        SchemaError: It doesn't have our tables.
        StoreError: It cannot be opened.
    """
    if missing_file(url):  # opening would create it
        return None
    async with aclosing(open_database(url, limits)) as database:
        before = time.time()
        query = _SIZE[database.driver.engine.dialect.name]
        result = await database.read(lambda c: c.exec_driver_sql(query))
        middle = (before + time.time()) / 2
        connections = await _connection_limit(database)
    values: Sequence[Any] = result.one()
    rows, owners, summaries, total, exact, connected, now = values
    return StoreState(
        rows=rows,
        owners=owners,
        summaries=summaries,
        bytes=total,
        exact=bool(exact),
        connections=connections,
        connected=connected,
        ahead_seconds=None if now is None else now - middle,
    )


#: Counts the rows after those of each owner that have vectors; an owner outside the queue has none.
_WITHOUT_VECTOR: Final = """
SELECT coalesce(sum(owners.last_sequence - coalesce(vector_queue.sequence, 0)), 0)
FROM owners LEFT JOIN vector_queue ON vector_queue.owner_key = owners.owner_key
WHERE vector_queue.owner_key IS NULL OR vector_queue.due IS NOT NULL"""


async def count_unembedded(url: str, limits: StoreSettings) -> int:
    """Return how many rows of an existing database have no vector yet, at most.

    Raises:
        SchemaError: It doesn't have our tables.
        StoreError: It cannot be opened.
    """
    async with aclosing(open_database(url, limits)) as database:
        result = await database.read(lambda c: c.exec_driver_sql(_WITHOUT_VECTOR))
        return int(result.scalar_one())


async def warn_of_pool(database: Database) -> None:
    """Log a warning if one process may open more connections than the server offers to all."""
    offered = await _connection_limit(database)
    pool_size = database.driver.readers + database.driver.writers
    if offered is not None and pool_size > offered:
        log.warning("store.pool_too_large", pool_size=pool_size, offered=offered)


async def _connection_limit(database: Database) -> int | None:
    """Return how many connections the server offers to all processes; None without a limit."""
    if (query := database.driver.connections) is None:
        return None
    result = await database.read(lambda c: c.exec_driver_sql(query))
    return int(result.scalar_one())
