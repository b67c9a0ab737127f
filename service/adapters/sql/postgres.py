"""Whether a server lets a process have as many connections as it may make."""

import re
from contextlib import ExitStack
from functools import partial
from typing import Final

import asyncpg
import structlog
from sqlalchemy.ext.asyncio import create_async_engine

from service.adapters.sql.engine import Database, Driver
from service.config.endpoints import StoreSettings
from service.errors import ConfigError, StoreError

#: Waits until no other session of this database changes the schema; the number is ours alone.
SCHEMA_LOCK: Final = "SELECT pg_advisory_xact_lock(7239847612008533)"
#: Connections for users who are no superusers, by the server's limit, or one on role or database.
#: Before version 16 none are reserved for others; -1 is no limit, and a null is left out.
CONNECTIONS: Final = """
SELECT least(
  current_setting('max_connections')::int
  - current_setting('superuser_reserved_connections')::int
  - coalesce(current_setting('reserved_connections', true)::int, 0),
  (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
  (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())
)"""
#: Seconds after the server's own limit at which a statement counts as lost: the network is gone.
GRACE_SECONDS: Final = 5.0

#: What sessions have otherwise than the server does by default. Each statement is bounded by an
#: index, but a planner without statistics, or with those of other owners, would rather read whole
#: tables, or all of an owner in place of a few rows by their ids. So plans are made with the
#: values, as owners differ by their size, and by the rows that they read: to find one is cheap.
SESSION: Final = {
    "application_name": "context-builder",
    "client_min_messages": "error",
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "cpu_tuple_cost": "1",
    "cpu_index_tuple_cost": "1",
    "cpu_operator_cost": "0.0001",
    "random_page_cost": "0.01",
    "seq_page_cost": "0.01",
    "jit": "off",
}

_PREPARE: Final = (
    "SELECT current_setting('server_encoding') AS encoding, set_config(name, value, false)"
    " FROM unnest($1::text[], $2::text[]) AS settings (name, value)"
)
#: Codes of PostgreSQL's appendix A that blame a row: its data, a constraint, a key that is too
#: large for an index.
_REFUSED: Final = re.compile("22|23|54000")
#: Those that blame the tables: they, their columns or indexes are not there, are there already, or
#: are of another type.
_MISFIT: Final = re.compile("42(?:P01|P07|701|703|710|804|883)")
#: A host, several, or none, and a database: what of a URL may be shown.
_PLACE: Final = re.compile(r"[\w.,:\[\]-]*(?:/[\w.-]*)?")


def postgres_driver(url: str, limits: StoreSettings) -> Driver:
    """Return the driver of a Postgres database; nothing is connected yet."""
    name = place(url)
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=partial(_connect, "postgresql" + url[url.index(":") :], limits, name),
        pool_size=limits.pool_size,
        max_overflow=0,
        pool_pre_ping=True,  # after a restart of the server the next transaction works
        hide_parameters=True,  # they are what users said
    )
    writers = limits.pool_size // 2
    return Driver(
        name=name,
        # One state for all statements; nothing that only reads can fail at this level.
        reader=engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        ),
        # Writers lock their owner and then have to see what the one before them has written, which
        # a snapshot from before the lock would refuse them.
        writer=engine.execution_options(isolation_level="READ COMMITTED"),
        readers=limits.pool_size - writers,
        writers=writers,
        errors=(OSError, asyncpg.PostgresError, asyncpg.InterfaceError),
        cause=_cause,
        refused=_refused,
        misfit=_misfit,
        chained=False,  # the server's details quote the row
        upgrades_itself=False,
        schema_lock=SCHEMA_LOCK,
        connections=CONNECTIONS,
    )


def place(url: str) -> str:
    """Return host and database of a URL, without anything that could be part of a password."""
    before, _, after = url.partition("://")[2].rpartition("@")
    shown = re.split("[?#]", after, maxsplit=1)[0]
    if "?" in before or not _PLACE.fullmatch(shown):
        return "Postgres"
    return shown


async def _connect(url: str, limits: StoreSettings, name: str) -> asyncpg.Connection:
    try:
        connection = await asyncpg.connect(
            url,
            timeout=limits.connect_timeout_seconds,
            command_timeout=limits.statement_timeout_seconds + GRACE_SECONDS,
        )
    except ValueError:  # raised for URLs; the cause would quote parts of the password
        raise ConfigError(
            "store.url: cannot be read; one is postgresql://user:password@host:5432/database"
        ) from None
    except asyncpg.UndefinedObjectError as error:  # what of a URL is not known goes to the server
        raise ConfigError(f"store.url: {error.message}") from None
    with ExitStack() as stack:
        stack.callback(connection.terminate)
        milliseconds = str(round(limits.statement_timeout_seconds * 1_000) or 1)
        wanted = {
            **SESSION,
            "statement_timeout": milliseconds,
            # a process that was stopped in a transaction does not keep its owner locked
            "idle_in_transaction_session_timeout": milliseconds,
        }
        # fetched whole: the server sets what it gives
        answers = await connection.fetch(_PREPARE, list(wanted), list(wanted.values()))
        if (encoding := answers[0]["encoding"]) != "UTF8":
            raise StoreError(f"{name}: its encoding is {encoding}; create it with ENCODING 'UTF8'")
        stack.pop_all()
    return connection


def _cause(error: Exception) -> str:
    """Return the server's message, but not its details, which quote what users said."""
    found = _original(error)
    if isinstance(found, asyncpg.PostgresError):
        return f"{found.message} ({found.sqlstate})"
    if isinstance(found, OSError):
        return str(found) or type(found).__name__
    return type(found).__name__


def _refused(error: Exception) -> bool:
    found = _original(error)
    if isinstance(found, asyncpg.InterfaceError):
        return isinstance(found, ValueError)  # a value that the driver cannot send
    return bool(_REFUSED.match(_sqlstate(found)))


def _misfit(error: Exception) -> bool:
    return bool(_MISFIT.match(_sqlstate(_original(error))))


def _sqlstate(error: BaseException) -> str:
    return error.sqlstate or "" if isinstance(error, asyncpg.PostgresError) else ""


def _original(error: Exception) -> BaseException:
    found: BaseException = getattr(error, "orig", None) or error
    return found.__cause__ or found


log = structlog.get_logger()


async def warn_of_pool(database: Database) -> None:
    """Log where one process alone may make more connections than the server offers to all."""
    if (question := database.driver.connections) is None:
        return
    asked = await database.read(lambda connection: connection.exec_driver_sql(question))
    offered, pool_size = asked.scalar_one(), database.driver.readers + database.driver.writers
    if pool_size > offered:
        log.warning("store.pool_too_large", pool_size=pool_size, offered=offered)
