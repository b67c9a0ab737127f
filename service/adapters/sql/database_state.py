"""The state of a database: its revision, size and connections; read without Alembic.

Alembic takes long to load, and is needed for upgrades and comparisons only.
"""

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.sql.database_urls import DEFAULTS, is_missing, opened
from service.adapters.sql.engine import Database
from service.config.endpoints import StoreSettings
from service.errors import SchemaError
from service.ports.status import StoreState

log = structlog.get_logger(__name__)

MIGRATIONS: Final = Path(__file__).with_name("migrations")

#: Alembic's own table; not in our metadata, so that it isn't compared with our tables.
_VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String(32)))


# --- revisions -------------------------------------------------------------------------------


async def read_revision(url: str, limits: StoreSettings = DEFAULTS) -> str | None:
    """Return the revision of the database at a URL; None if it is missing or has no schema.

    Raises:
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if is_missing(url):  # opening would create it
        return None
    async with opened(url, limits) as database:
        return await find_revision(database)


async def require_newest(database: Database) -> None:
    """Raise `SchemaError` unless a database has the newest revision."""
    revision = await find_revision(database)
    if revision is None:
        raise SchemaError(f"{database.name}: it has no schema yet: run `ctxb db upgrade`")
    require_known(revision, database)
    if revision != newest_revision():
        raise SchemaError(
            f"{database.name}: its schema is at revision {revision}, which is older than"
            f" {newest_revision()}: run `ctxb db upgrade`"
        )


def require_known(revision: str, database: Database) -> None:
    """Raise `SchemaError` for a revision of a later version of this program."""
    if revision not in known_revisions():
        raise SchemaError(
            f"{database.name}: its schema is at revision {revision}, which this version of the"
            f" program does not know (its newest is {newest_revision()}): run a newer version"
        )


def newest_revision() -> str:
    """Return the newest revision that this program knows."""
    return known_revisions()[-1]


@functools.cache
def known_revisions() -> tuple[str, ...]:
    """Return all revisions, oldest first; the names of their files begin with them."""
    files = MIGRATIONS.glob("versions/[0-9]*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


async def find_revision(database: Database) -> str | None:
    """Return the revision of an open database, None if it has no schema."""
    return await database.read(lambda c: c.run_sync(revision_of), by_index=False)


def revision_of(connection: Connection) -> str | None:
    """Return the revision that a connection sees, None without a schema."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    revisions = connection.scalars(select(_VERSION.c.version_num)).all()
    if len(revisions) > 1:
        raise SchemaError("the table alembic_version names several revisions")
    return revisions[0] if revisions else None


# --- size and connections --------------------------------------------------------------------

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
    if is_missing(url):  # opening would create it
        return None
    async with opened(url, limits) as database:
        before = time.time()
        values = await database.read(_read_size, by_index=False)
        middle = (before + time.time()) / 2
        connections = await _connection_limit(database)
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


async def _read_size(connection: AsyncConnection) -> Sequence[Any]:
    result = await connection.exec_driver_sql(_SIZE[connection.dialect.name])
    return result.one()


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
    result = await database.read(lambda c: c.exec_driver_sql(query), by_index=False)
    return int(result.scalar_one())
