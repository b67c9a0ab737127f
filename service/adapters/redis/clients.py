"""Open clients of Redis or Valkey, from a URL and the options of the bus."""

import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.driver import CONNECTIONS, Pool
from service.config.endpoints import TlsSettings
from service.errors import ConfigError

#: Connections of one kind; callers wait for a free one when all are in use.
MAX_CONNECTIONS: Final = 32
#: Connections that wait for entries: in a cluster each stream needs one of its own.
MAX_BLOCKING: Final = 256

_EXAMPLE: Final = "redis://user:password@host:6379/0"


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of one server; they differ in how they wait and how they fail."""

    #: Commands that are answered at once.
    commands: Redis
    #: Reads that wait for entries: the caller sets the time limit.
    blocking: Redis
    #: Subscriptions: a lost connection raises, instead of being replaced silently.
    subscribing: Redis


def make_clients(
    stack: AsyncExitStack, url: str, options: BusOptions, node: tuple[str, int] | None = None
) -> Clients:
    """Make clients, which connect when they are first used; raises `ConfigError`.

    They connect to the server of the URL, or to the cluster node of this host and port with the
    URL's user and options.
    Commands are sent again for about a second after a lost connection, so each must be safe to
    run twice. A server that accepts but doesn't answer costs ``socket_timeout_seconds`` and is not
    tried again.
    """
    retrying = Retry(ExponentialWithJitterBackoff(0.5, 0.05), 3, (RedisConnectionError,))
    # without errors to retry on, redis-py never reconnects silently
    failing = Retry(NoBackoff(), 0, ())
    commands = _make_client(stack, url, options, retrying)
    blocking = _make_client(stack, url, options, failing if node else retrying, MAX_BLOCKING)
    blocking.connection_pool.connection_kwargs["socket_timeout"] = None
    subscribing = _make_client(stack, url, options, failing)
    if node is not None:
        host, port = node
        for client in (commands, blocking, subscribing):
            client.connection_pool.connection_kwargs.update(host=host, port=port)
    return Clients(commands, blocking, subscribing)


def check_url(url: str, options: BusOptions) -> None:
    """Raise `ConfigError` if no connection could use the URL and the options; nothing connects."""
    _make_pool(url, options, Retry(NoBackoff(), 0, ()))


def _make_client(
    stack: AsyncExitStack,
    url: str,
    options: BusOptions,
    retry: Retry,
    max_connections: int = MAX_CONNECTIONS,
) -> Redis:
    pool = _make_pool(url, options, retry, max_connections)
    pool.connection_class = CONNECTIONS[pool.connection_class]
    # payloads are bytes, whatever the URL's query says
    pool.connection_kwargs["decode_responses"] = False
    client = Redis.from_pool(pool)
    stack.push_async_callback(client.aclose)
    return client


def _make_pool(
    url: str, options: BusOptions, retry: Retry, max_connections: int = MAX_CONNECTIONS
) -> Pool:
    _check_url(url)
    try:
        # redis-py's default pool raises in a burst where this one waits
        pool: Pool = Pool.from_url(
            url,
            max_connections=max_connections,
            timeout=options.socket_timeout_seconds,
            socket_timeout=options.socket_timeout_seconds,
            socket_connect_timeout=options.socket_timeout_seconds,
            client_name=options.consumer,
            retry=retry,
            **tls_arguments(url, options.tls),
        )
    except ValueError as error:
        raise ConfigError(f"bus.url: {error}") from error
    _check_options(url, pool)
    return pool


def _check_url(url: str) -> None:
    """Raise `ConfigError` for a URL that redis-py would misread.

    The error shows nothing of the URL: a misplaced part may belong to the password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError(
            f"bus.url: host and port cannot be read; expected a URL like {_EXAMPLE}, with "
            "characters such as / and @ in a password percent-encoded"
        ) from None
    if not parts.scheme:
        raise ConfigError(f"bus.url: names no scheme; expected a URL like {_EXAMPLE}")
    if parts.scheme == "unix" and not parts.path:
        raise ConfigError("bus.url: names no socket; one is unix:///run/redis.sock")
    database = parts.path.strip("/")
    # redis-py uses database 0 when it can't read the number
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ConfigError(
            f"bus.url: the database after the host is not a number; expected a URL like {_EXAMPLE}"
        )


def _check_options(url: str, pool: ConnectionPool) -> None:
    """Raise `ConfigError` for options in the URL that no connection accepts."""
    try:
        pool.make_connection()  # type: ignore[no-untyped-call] # redis-py's
    except (TypeError, RedisError) as error:
        names = ", ".join(parse_qs(urlsplit(url).query))
        raise ConfigError(f"bus.url: its options ({names}) cannot be used: {error}") from error


def tls_arguments(url: str, tls: TlsSettings) -> dict[str, str | bool]:
    """Return the arguments of a connection pool for TLS; raises `ConfigError`."""
    if not url.startswith("rediss:"):
        if tls != TlsSettings():
            raise ConfigError("bus.tls: TLS is used only if the scheme of bus.url is rediss")
        return {}
    _check_tls_files(tls)
    files = {
        "ssl_ca_certs": tls.ca_file,
        "ssl_certfile": tls.cert_file,
        "ssl_keyfile": tls.key_file,
    }
    arguments: dict[str, str | bool] = {name: str(path) for name, path in files.items() if path}
    if not tls.check_hostname:  # else left out, so that the URL may say ssl_check_hostname=False
        arguments["ssl_check_hostname"] = False
    return arguments


def _check_tls_files(tls: TlsSettings) -> None:
    """Raise `ConfigError` for unusable files; redis-py fails only when it connects."""
    if tls.key_file and not tls.cert_file:
        raise ConfigError("bus.tls.key_file: a key needs its certificate, bus.tls.cert_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    setting, path = "ca_file", tls.ca_file
    try:
        if tls.ca_file:
            context.load_verify_locations(tls.ca_file)
        setting, path = "cert_file", tls.cert_file
        if tls.cert_file:
            # without a password, OpenSSL would prompt on the terminal for that of an encrypted key
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except OSError as error:  # also OpenSSL's
        raise ConfigError(f"bus.tls.{setting}: {path}: {error}") from error
