"""The Postgres driver: connections, transactions, and the reasons of its errors."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import asyncpg
from sqlalchemy.ext.asyncio import create_async_engine

from service.adapters.sql.engine import Driver
from service.config.endpoints import StoreSettings
from service.errors import ConfigError, RowRefusedError, SchemaError, StoreError

#: Waits until no other session of this database changes the schema; the number is ours alone.
SCHEMA_LOCK: Final = "SELECT pg_advisory_xact_lock(7239847612008533)"
#: Connections for users who are no superusers: the server's limit, or the role's or database's.
#: Before version 16 none are reserved for others; -1 means no limit, and nulls are ignored.
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

#: Session settings that differ from the server's defaults. Owners differ in size, so plans are
#: made with the parameters' values.
SESSION: Final = {
    "application_name": "context-builder",
    "client_min_messages": "error",
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
}
#: Planner settings of transactions whose statements are all bounded by an index. Without
#: statistics, or with those of other owners, the planner would rather read and sort all rows of an
#: owner than fetch a few by their ids. So the cost of a plan is the number of rows that it reads;
#: to find one is cheap.
BY_INDEX: Final = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "cpu_tuple_cost": "1",
    "cpu_index_tuple_cost": "1",
    "cpu_operator_cost": "0.0001",
    "random_page_cost": "0.01",
    "seq_page_cost": "0.01",
}

_PREPARE: Final = (
    "SELECT current_setting('server_encoding') AS encoding, set_config(name, value, false)"
    " FROM unnest($1::text[], $2::text[]) AS settings (name, value)"
)
#: Codes of PostgreSQL's appendix A that are a row's fault: its data, a constraint, a key that is
#: too large for an index.
_REFUSED: Final = re.compile("22|23|54000")
#: Codes for tables, columns or indexes that are missing, exist already, or have another type.
_MISFIT: Final = re.compile("42(?:P01|P07|701|703|710|804|883)")
#: A host, several, or none, and a database: the part of a URL that may be shown.
_HOST_AND_DATABASE: Final = re.compile(r"[\w.,:\[\]-]*(?:/[\w.-]*)?")


def postgres_driver(url: str, limits: StoreSettings) -> Driver:
    """Return the driver of a Postgres database; nothing is connected yet."""
    name = host_and_database(url)
    milliseconds = str(round(limits.statement_timeout_seconds * 1_000) or 1)
    session = {
        **SESSION,
        "statement_timeout": milliseconds,
        # a process that is stopped inside a transaction must not keep its owner locked
        "idle_in_transaction_session_timeout": milliseconds,
    }
    connect = partial(_connect, "postgresql" + url[url.index(":") :], limits, session, name)
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        isolation_level="AUTOCOMMIT",
        pool_size=limits.pool_size,
        max_overflow=0,
        pool_pre_ping=True,  # the first transaction after a restart of the server works
        hide_parameters=True,  # they hold what users wrote
    )
    writers = limits.pool_size // 2
    return Driver(
        name=name,
        engine=engine,
        local=None,
        # one state for all statements; nothing that only reads can fail at this level
        begin_read="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        # Writers lock their owner, and then have to see what the one before them has written; a
        # snapshot from before the lock would hide it.
        begin_write="BEGIN ISOLATION LEVEL READ COMMITTED",
        by_index="".join(f"; SET LOCAL {name} = {value}" for name, value in BY_INDEX.items()),
        readers=limits.pool_size - writers,
        writers=writers,
        errors=(OSError, asyncpg.PostgresError, asyncpg.InterfaceError),
        explain=_explain,
        chained=False,  # the server's details quote the row
        upgrades_itself=False,
        schema_lock=SCHEMA_LOCK,
        connections=CONNECTIONS,
    )


def host_and_database(url: str) -> str:
    """Return host and database of a URL, without anything that could be part of a password."""
    before, _, after = url.partition("://")[2].rpartition("@")
    shown = re.split("[?#]", after, maxsplit=1)[0]
    if "?" in before or not _HOST_AND_DATABASE.fullmatch(shown):
        return "Postgres"
    return shown


async def _connect(
    url: str, limits: StoreSettings, session: Mapping[str, str], name: str
) -> asyncpg.Connection:
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
    except asyncpg.UndefinedObjectError as error:  # unknown parameters of a URL go to the server
        raise ConfigError(f"store.url: {error.message}") from None
    with ExitStack() as stack:
        stack.callback(connection.terminate)
        # all rows are fetched: the server changes a setting as it returns the row
        rows = await connection.fetch(_PREPARE, list(session), list(session.values()))
        if (encoding := rows[0]["encoding"]) != "UTF8":
            raise StoreError(f"{name}: its encoding is {encoding}; create it with ENCODING 'UTF8'")
        stack.pop_all()
    return connection


def _explain(error: Exception) -> tuple[type[StoreError], str]:
    """Return the server's message, but not its details, which quote what users wrote."""
    original = getattr(error, "orig", None) or error
    original = original.__cause__ or original
    if isinstance(original, asyncpg.PostgresError):
        state = original.sqlstate or ""
        cause = f"{original.message} ({state})"
        if _REFUSED.match(state):
            return RowRefusedError, cause
        return SchemaError if _MISFIT.match(state) else StoreError, cause
    if isinstance(original, OSError):
        return StoreError, str(original) or type(original).__name__
    # a value that the driver cannot send
    refused = isinstance(original, asyncpg.InterfaceError) and isinstance(original, ValueError)
    return RowRefusedError if refused else StoreError, type(original).__name__
