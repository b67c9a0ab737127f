"""Open connections to Redis or Valkey, and translate their errors into the service's."""

import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.driver import CONNECTIONS, Pool
from service.config.endpoints import TlsSettings
from service.errors import BusError, ConfigError, ForbiddenError, OverloadedError

EPOCH: Final = datetime.fromtimestamp(0, UTC)

#: Connections of one kind; callers wait for a free one when all are in use.
MAX_CONNECTIONS: Final = 32
#: Connections that wait for entries: in a cluster each stream needs one of its own.
MAX_BLOCKING: Final = 256

_EXAMPLE: Final = "redis://user:password@host:6379/0"


class ServerClock:
    """The server's time: the local clock plus the difference that was last measured."""

    def __init__(self) -> None:
        self._offset = 0.0

    async def measure(self, client: Redis) -> None:
        """Ask the server for its time; assumes that half of the round trip is the way there."""
        before = time.time()
        seconds, microseconds = await client.time()
        middle = (before + time.time()) / 2
        self._offset = seconds + microseconds / 1e6 - middle

    def now(self) -> datetime:
        """Return the server's time."""
        return datetime.fromtimestamp(time.time() + self._offset, UTC)

    def written_at(self, entry_id: str) -> datetime:
        """Return when an entry was written; now, if its id is not a time.

        Entries of one millisecond keep their order: they are a microsecond apart.
        """
        milliseconds, _, number = entry_id.partition("-")
        try:
            after = timedelta(milliseconds=int(milliseconds), microseconds=min(int(number), 999))
            return EPOCH + after
        except OverflowError:
            return self.now()


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of one server; they differ in how they wait and how they fail."""

    #: Commands that are answered at once.
    commands: Redis
    #: Reads that wait for entries: the caller sets the time limit.
    blocking: Redis
    #: Subscriptions: a lost connection raises, instead of being replaced silently.
    subscribing: Redis
    clock: ServerClock


@asynccontextmanager
async def open_clients(url: str, options: BusOptions) -> AsyncIterator[Clients]:
    """Connect to ``redis://``, ``rediss://`` or ``unix://``; raises `BusError`, `ConfigError`."""
    async with AsyncExitStack() as stack:
        clients = make_clients(stack, url, options)
        # without the user and the password
        address = clients.commands.connection_pool.connection_kwargs
        tcp = f"{address.get('host', 'localhost')}:{address.get('port', 6379)}"
        with bus_errors(f"connect to {address.get('path') or tcp}"):
            await clients.clock.measure(clients.commands)
        yield clients


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cluster node."""

    host: str
    port: int


def make_clients(
    stack: AsyncExitStack, url: str, options: BusOptions, node: Address | None = None
) -> Clients:
    """Make clients, which connect when they are first used; raises `ConfigError`.

    They connect to the server of the URL, or to ``node`` with the URL's user and options.
    Commands are sent again for about a second after a lost connection, so each must be safe to
    run twice. A server that accepts but doesn't answer costs ``socket_timeout_seconds`` and is not
    asked again.
    """
    retrying = Retry(ExponentialWithJitterBackoff(0.5, 0.05), 3, (RedisConnectionError,))
    # without errors to retry on, redis-py never reconnects silently
    failing = Retry(NoBackoff(), 0, ())
    commands = _make_client(stack, url, options, retrying)
    blocking = _make_client(stack, url, options, failing if node else retrying, MAX_BLOCKING)
    blocking.connection_pool.connection_kwargs["socket_timeout"] = None
    subscribing = _make_client(stack, url, options, failing)
    if node is not None:
        for client in (commands, blocking, subscribing):
            client.connection_pool.connection_kwargs.update(host=node.host, port=node.port)
    return Clients(commands, blocking, subscribing, ServerClock())


def _make_client(
    stack: AsyncExitStack,
    url: str,
    options: BusOptions,
    retry: Retry,
    max_connections: int = MAX_CONNECTIONS,
) -> Redis:
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
    pool.connection_class = CONNECTIONS[pool.connection_class]
    # payloads are bytes, whatever the URL's query says
    pool.connection_kwargs["decode_responses"] = False
    client = Redis.from_pool(pool)
    stack.push_async_callback(client.aclose)
    return client


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


# --- TLS -------------------------------------------------------------------------------------


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
    # left out when true, so that the URL may say ssl_check_hostname=False
    return arguments if tls.check_hostname else {**arguments, "ssl_check_hostname": False}


def _check_tls_files(tls: TlsSettings) -> None:
    """Raise `ConfigError` for unusable files; redis-py fails only when it connects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca_file:
        _load("ca_file", tls.ca_file, lambda: context.load_verify_locations(tls.ca_file))
    if tls.key_file and not tls.cert_file:
        raise ConfigError("bus.tls.key_file: a key needs its certificate, bus.tls.cert_file")
    if tls.cert_file:
        pair = (tls.cert_file, tls.key_file)
        # with no password given, OpenSSL would prompt on the terminal for that of an encrypted key
        _load("cert_file", tls.cert_file, lambda: context.load_cert_chain(*pair, password=""))


def _load(setting: str, path: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"bus.tls.{setting}: {path}: {error}") from error


# --- errors ----------------------------------------------------------------------------------

#: Codes of a server that refuses all writes; Redis 6.2 puts them in the middle of the message.
_REFUSES_WRITES: Final = re.compile(
    r"\b(OOM|READONLY|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|MASTERDOWN|TRYAGAIN)\b"
)
#: Those that a cluster node reports about itself alone.
_NODE_REFUSES_WRITES: Final = re.compile(r"\b(OOM|READONLY|MISCONF|NOREPLICAS)\b")
#: How ACL rules refuse a command within a script: Redis 7.0, and all other versions.
_FORBIDDEN: Final = re.compile(r"The user executing the script|ACL failure")


class GroupMissingError(BusError):
    """The consumer group does not exist, for example after a flush."""


class WritesRefusedError(BusError, OverloadedError):
    """The server answers but refuses writes: it is out of memory, a replica, or cannot save."""


class NodeWritesRefusedError(RedisError):
    """A cluster node refuses writes; it replaces the node's replies as if it were unavailable."""


@contextmanager
def bus_errors(action: str) -> Iterator[None]:
    """Raise redis-py's errors and `OSError` as `BusError`; ``action`` names what was tried."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise as_bus_error(action, error) from error


def as_bus_error(action: str, error: Exception) -> BusError:
    """Return the `BusError` for an error that redis-py raised or returned as a reply."""
    return _error_class(error)(f"{action}: {str(error) or type(error).__name__}")


def _error_class(error: Exception) -> type[BusError]:
    if isinstance(error, NodeWritesRefusedError):
        return WritesRefusedError
    if not isinstance(error, ResponseError):
        return BusError
    message = _message(error)
    if isinstance(error, NoPermissionError) or _FORBIDDEN.search(message):
        return ForbiddenError
    # Redis 7.0 answers UNBLOCKED to a reader that waits while the stream is deleted
    if "NOGROUP" in message or "UNBLOCKED" in message:
        return GroupMissingError
    return WritesRefusedError if _REFUSES_WRITES.search(message) else BusError


def _message(error: ResponseError) -> str:
    """Return the server's message; redis-py strips the code if it has a class for it."""
    return f"{error.status_code} {error}"


def as_refused_writes(reply: object) -> NodeWritesRefusedError | None:
    """Return the error to use in place of a cluster node's reply if the node refuses writes."""
    if isinstance(reply, ResponseError) and _NODE_REFUSES_WRITES.search(_message(reply)):
        return NodeWritesRefusedError(str(reply))
    return None


def is_unavailable(reply: object) -> bool:
    """Return whether a reply is the error of a cluster node that is down or refuses writes."""
    return isinstance(reply, Exception) and not isinstance(reply, ResponseError)
