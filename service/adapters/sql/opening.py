"""Opens databases by the scheme of their URL."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from service.adapters.sql.engine import Database, Driver
from service.adapters.sql.sqlite import sqlite_driver, sqlite_path
from service.config.endpoints import StoreSettings
from service.errors import ConfigError, StoreError

DEFAULTS: Final = StoreSettings()


def open_database(url: str, limits: StoreSettings = DEFAULTS) -> Database:
    """Return the database at a URL.

    Raises:
        ConfigError: The driver is not installed.
        StoreError: The URL is not one of an SQL database, or the file cannot be opened.
    """
    return Database(_driver(url)(url, limits))


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
    return _driver(url) is _sqlite and not sqlite_path(url).exists()


def _driver(url: str) -> Callable[[str, StoreSettings], Driver]:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise StoreError("the store's URL cannot be read; one is sqlite:///history.db")
    if scheme not in DRIVERS:
        raise StoreError(f"no SQL store for {scheme}: URLs; one is sqlite:///history.db")
    return DRIVERS[scheme]


def _sqlite(url: str, _limits: StoreSettings) -> Driver:
    return sqlite_driver(url)


def _postgres(url: str, limits: StoreSettings) -> Driver:
    try:
        from service.adapters.sql.postgres import postgres_driver  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(
            "store.url: Postgres needs the extra: pip install 'context-builder[postgres]'"
        ) from error
    return postgres_driver(url, limits)


DRIVERS: Final[Mapping[str, Callable[[str, StoreSettings], Driver]]] = {
    "sqlite": _sqlite,
    "sqlite+aiosqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
    "postgresql+asyncpg": _postgres,
}
