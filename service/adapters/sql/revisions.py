"""Which revision of the schema a database has; read without Alembic, which takes long to load."""

import functools
from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from service.adapters.sql.engine import Database
from service.adapters.sql.opening import DEFAULTS, is_missing, opened
from service.config.endpoints import StoreSettings
from service.errors import SchemaError

MIGRATIONS: Final = Path(__file__).with_name("migrations")

#: Alembic's own table; none of ours, so that it is not compared with them.
_VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String(32)))


async def current(url: str, limits: StoreSettings = DEFAULTS) -> str | None:
    """Return the revision that a database has; None where there is no database or no schema.

    Raises:
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if is_missing(url):  # to look must not create it
        return None
    async with opened(url, limits) as database:
        return await found_in(database)


async def require_newest(database: Database) -> None:
    """Raise `SchemaError` unless a database has the newest revision."""
    found = await found_in(database)
    if found is None:
        raise SchemaError(f"{database.name}: it has no schema yet: run `ctxb db upgrade`")
    require_known(found, database)
    if found != newest():
        raise SchemaError(
            f"{database.name}: its schema is at revision {found}, which is older than {newest()}:"
            " run `ctxb db upgrade`"
        )


def require_known(revision: str, database: Database) -> None:
    """Raise `SchemaError` for a revision that a later version of this program has made."""
    if revision not in known():
        raise SchemaError(
            f"{database.name}: its schema is at revision {revision}, which this version of the"
            f" program does not know (its newest is {newest()}): run a newer version"
        )


def newest() -> str:
    """Return the newest revision that this program knows."""
    return known()[-1]


@functools.cache
def known() -> tuple[str, ...]:
    """Return all revisions, the oldest first: the names of their files begin with them."""
    files = MIGRATIONS.glob("versions/[0-9]*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


async def found_in(database: Database) -> str | None:
    """Return the revision of an open database, None where it has no schema."""
    return await database.read(lambda c: c.run_sync(revision_of), by_index=False)


def revision_of(connection: Connection) -> str | None:
    """Return the revision that a connection sees, None without a schema."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    found = connection.scalars(select(_VERSION.c.version_num)).all()
    if len(found) > 1:
        raise SchemaError("the table alembic_version names several revisions")
    return found[0] if found else None
