"""The schema's revisions: bring a database to the newest one, and tell which one it has."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection

from service.adapters.sql.engine import Database, sqlite_path
from service.errors import StoreError

_MIGRATIONS: Final = Path(__file__).with_name("migrations")


async def upgrade(url: str) -> None:
    """Bring a database to the newest revision, creating it where there is none.

    All of it is one transaction: of processes that start together one upgrades, the others wait.

    Raises:
        StoreError: The database cannot be opened, or is of a newer version of this program.
    """
    database = Database(url)
    try:
        await database.write(lambda connection: connection.run_sync(_upgrade))
    except CommandError as error:
        raise StoreError(f"{database.path}: {error}") from error
    finally:
        await database.close()


async def current(url: str) -> str | None:
    """Return the revision that a database has; None where there is no database or no schema.

    Raises:
        StoreError: The URL cannot be used, or the database cannot be opened.
    """
    if not sqlite_path(url).exists():  # to look must not create it
        return None
    database = Database(url)
    try:
        return await database.read(lambda connection: connection.run_sync(_revision))
    finally:
        await database.close()


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
