"""The SQLite driver: one writer, and a write-ahead log that doesn't block readers."""

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import URL, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from service.adapters.sql.engine import Driver
from service.adapters.sql.local import PRIMARY_CODE, LocalReader
from service.errors import RowRefusedError, SchemaError, StoreError

#: Seconds that a transaction waits for another process's to end.
BUSY_SECONDS: Final = 10.0
#: Reading transactions at a time; each connection has its own thread.
READERS: Final = 4
#: The memory for pages of each connection, in KiB. Without the 2,000 of a default, the upper pages
#: of the indexes of a million rows are read from the system again and again.
CACHE_KIB: Final = 8_000
#: The bytes of a file that are read from the system's memory, without a call for each page.
MAPPED_BYTES: Final = 1 << 30

_NEEDS_WRITING: Final = "; the file and its folder have to be writable, also to read"
#: Messages about tables that are not those of their revision; SQLite has no error code for it.
_MISFIT: Final = re.compile("no such (?:table|column|index)|already exists|duplicate column name")


def sqlite_driver(url: str) -> Driver:
    """Return the driver of a database file, which is created if it is missing.

    Raises:
        StoreError: The URL names no file, or the file cannot be opened.
    """
    path = sqlite_path(url)
    try:
        # tried here, because the driver leaks a thread if it cannot open a file
        with closing(sqlite3.connect(path)):
            pass
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_describe(error)}") from error
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        isolation_level="AUTOCOMMIT",
        skip_autocommit_rollback=True,
        pool_size=READERS + 1,
        max_overflow=0,
        pool_use_lifo=True,  # the connection whose pages were used last
        hide_parameters=True,  # they hold what users wrote
    )
    event.listen(engine.sync_engine, "connect", _prepare)

    def connect(wait_seconds: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=wait_seconds, isolation_level=None, check_same_thread=False
        )
        _prepare(connection)
        return connection

    return Driver(
        name=str(path),
        engine=engine,
        local=LocalReader(connect, BUSY_SECONDS),
        begin_read="BEGIN",
        # a transaction that reads before it writes may lose its snapshot, so writers lock at once
        begin_write="BEGIN IMMEDIATE",
        by_index="",
        readers=READERS,
        writers=1,  # SQLite has one, and polls while it waits for it
        errors=(sqlite3.Error,),
        explain=_explain,
        chained=True,
        upgrades_itself=True,
        schema_lock=None,
        connections=None,
    )


def sqlite_path(url: str) -> Path:
    """Return the file that ``sqlite:///relative.db`` or ``sqlite:////absolute.db`` names.

    Raises:
        StoreError: The URL names none, or its folder does not exist.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # as for the port in sqlite://:memory:
        raise StoreError("store.url cannot be read; one is sqlite:///history.db") from error
    if not parsed.database or parsed.database == ":memory:":
        file = parsed.host or "history.db"  # two slashes begin a host
        raise StoreError(f"store.url names no file; one is sqlite:///{file}")
    path = Path(parsed.database)
    if not path.absolute().parent.is_dir():
        raise StoreError(f"{path}: the folder {path.absolute().parent} does not exist")
    return path


def _prepare(
    connection: DBAPIConnection | sqlite3.Connection, _entry: ConnectionPoolEntry | None = None
) -> None:
    cursor = connection.cursor()
    # Readers and the writer don't block each other. The file keeps this mode. While others use a
    # new file it cannot be set, and SQLite doesn't wait: then one of them has set it, or a later
    # connection will. Any other failure here is repeated by the first statement.
    # With NORMAL, a crash of the machine, not of the process, may lose the last commits, but never
    # the file.
    pages = (f"cache_size=-{CACHE_KIB}", f"mmap_size={MAPPED_BYTES}")
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", *pages):
        with suppress(sqlite3.DatabaseError):
            cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _describe(error: Exception) -> str:
    """Return what SQLite says, with the remedy if it can't open or write the file."""
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    is_blocked = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return f"{error}{_NEEDS_WRITING if is_blocked else ''}"


def _explain(error: Exception) -> tuple[type[StoreError], str]:
    original = getattr(error, "orig", None) or error
    cause = _describe(original)
    if isinstance(original, sqlite3.IntegrityError | sqlite3.DataError):
        return RowRefusedError, cause
    return SchemaError if _MISFIT.search(cause) else StoreError, cause
