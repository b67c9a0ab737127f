"""What the URL of a server has to be, told before anything connects to another place than meant."""

from urllib.parse import parse_qs, urlsplit

from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

from service.errors import ConfigError

_EXAMPLE = "redis://user:password@host:6379/0"


def check_url(url: str) -> None:
    """Raise `ConfigError` for what redis-py reads otherwise than it is meant.

    Nothing of the URL is shown: what stands in the wrong place may be a part of the password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError(
            f"bus.url: host and port cannot be read; one is {_EXAMPLE}, with signs such as / and @ "
            "in a password percent-encoded"
        ) from None
    database = parts.path.strip("/")
    # redis-py takes the database 0 for one that it can't read
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ConfigError(f"bus.url: the database after the host is no number; one is {_EXAMPLE}")


def check_options(url: str, pool: ConnectionPool) -> None:
    """Raise `ConfigError` for options in the URL that no connection can be made with."""
    try:
        pool.make_connection()  # type: ignore[no-untyped-call] # as redis-py has it
    except (TypeError, RedisError) as error:
        named = ", ".join(parse_qs(urlsplit(url).query))
        raise ConfigError(f"bus.url: its options ({named}) cannot be used: {error}") from error


def place_of(pool: ConnectionPool) -> str:
    """Return where connections go, without who goes there."""
    where = pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")
