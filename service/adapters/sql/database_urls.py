"""Opens databases by the scheme of their URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from service.adapters.sql.engine import Database
from service.adapters.sql.sqlite import sqlite_driver, sqlite_path
from service.config.endpoints import StoreSettings
from service.errors import ConfigError, StoreError

DEFAULTS: Final = StoreSettings()

_SQLITE: Final = ("sqlite", "sqlite+aiosqlite")
_POSTGRES: Final = ("postgres", "postgresql", "postgresql+asyncpg")


def open_database(url: str, limits: StoreSettings = DEFAULTS) -> Database:
    """Return the database at a URL.

    Raises:
        ConfigError: The driver is not installed.
        StoreError: The URL is not one of an SQL database, or the file cannot be opened.
    """
    if _scheme(url) in _SQLITE:
        return Database(sqlite_driver(url))
    try:
        from service.adapters.sql.postgres import postgres_driver  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(
            "store.url: Postgres needs the extra: pip install 'context-builder[postgres]'"
        ) from error
    return Database(postgres_driver(url, limits))


@asynccontextmanager
async def opened(url: str, limits: StoreSettings) -> AsyncIterator[Database]:
    """Open a database for the duration of the context; raises as `open_database` does."""
    database = open_database(url, limits)
    try:
        yield database
    finally:
        await database.close()


def is_missing(url: str) -> bool:
    """Return whether the URL names a file that doesn't exist, and that opening would create."""
    return _scheme(url) in _SQLITE and not sqlite_path(url).exists()


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise StoreError("the store's URL cannot be read; one is sqlite:///history.db")
    if scheme not in (*_SQLITE, *_POSTGRES):
        raise StoreError(f"no SQL store for {scheme}: URLs; one is sqlite:///history.db")
    return scheme
