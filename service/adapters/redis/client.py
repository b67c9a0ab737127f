"""Connections to Redis or Valkey, and what is peculiar about them."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.tls import tls_arguments
from service.adapters.redis.url import check_options, check_url, place_of
from service.aio import heed_cancellation
from service.errors import BusError, ConfigError, ForbiddenError, OverloadedError

EPOCH = datetime.fromtimestamp(0, UTC)

#: Connections of one kind at most; more callers than that wait for one.
MAX_CONNECTIONS = 32
#: Connections that wait for entries: in a cluster each stream has one of its own.
MAX_BLOCKING = 256

#: How a server says that it takes no writes now, whatever they are; Redis 6.2 says it mid-sentence.
_CLOSED = re.compile(r"\b(OOM|READONLY|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|MASTERDOWN|TRYAGAIN)\b")

#: The same, where it is a node of a cluster that says it for itself, whatever the others do.
_NODE_CLOSED: Final = re.compile(r"\b(OOM|READONLY|MISCONF|NOREPLICAS)\b")

#: How a server refuses, within a script, what its rules forbid: Redis 7.0, and all others.
_FORBIDDEN = re.compile(r"The user executing the script|ACL failure")

#: An entry as the server gave it: its id and its fields.
Entry = tuple[str, Mapping[bytes, bytes]]


class GroupMissingError(BusError):
    """The consumer group does not exist, as after a flush."""


class ClosedError(BusError, OverloadedError):
    """The server answers but takes no writes now: it is full, a replica, or cannot save."""


class NodeClosedError(RedisError):
    """A node of a cluster takes no writes now; stands for its replies as if it were away."""


@contextmanager
def bus_errors(doing: str) -> Iterator[None]:
    """Raise `BusError` for whatever Redis raises; ``doing`` says what was tried."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise as_bus_error(doing, error) from error


def as_bus_error(doing: str, error: Exception) -> BusError:
    """Return the `BusError` for what Redis raised or replied."""
    return _kind(error)(f"{doing}: {str(error) or type(error).__name__}")


def _kind(error: Exception) -> type[BusError]:
    if isinstance(error, NodeClosedError):
        return ClosedError
    if not isinstance(error, ResponseError):
        return BusError
    said = _said(error)
    if isinstance(error, NoPermissionError) or _FORBIDDEN.search(said):
        return ForbiddenError
    # Redis 7.0 calls the group of a deleted stream UNBLOCKED where a reader waits for it.
    if "NOGROUP" in said or "UNBLOCKED" in said:
        return GroupMissingError
    return ClosedError if _CLOSED.search(said) else BusError


def _said(error: ResponseError) -> str:
    """Return what a server said: redis-py takes the code off messages for which it has a class."""
    return f"{error.status_code} {error}"


def as_closed(reply: object) -> NodeClosedError | None:
    """Return what stands for a node's reply where it is that it takes no writes now."""
    if isinstance(reply, ResponseError) and _NODE_CLOSED.search(_said(reply)):
        return NodeClosedError(str(reply))
    return None


def is_away(reply: object) -> bool:
    """Say whether an error stands for a reply because a node of a cluster is away, or closed."""
    return isinstance(reply, Exception) and not isinstance(reply, ResponseError)


class ServerClock:
    """The server's time, reckoned from the local clock and the difference last measured."""

    def __init__(self) -> None:
        self._offset = 0.0

    async def measure(self, client: Redis) -> None:
        """Ask the server for its time; half of the round trip is taken for the way there."""
        before = time.time()
        seconds, microseconds = await client.time()
        middle = (before + time.time()) / 2
        self._offset = seconds + microseconds / 1e6 - middle

    def now(self) -> datetime:
        """Return the server's time."""
        return datetime.fromtimestamp(time.time() + self._offset, UTC)

    def written_at(self, entry_id: str) -> datetime:
        """Return when an entry was written; now, where a producer made the id up.

        Those of one millisecond have their order, a microsecond apart.
        """
        milliseconds, _, number = entry_id.partition("-")
        try:
            after = timedelta(milliseconds=int(milliseconds), microseconds=min(int(number), 999))
            return EPOCH + after
        except OverflowError:
            return self.now()


@dataclass(frozen=True, slots=True)
class Clients:
    """The connections of a bus. Each kind has its own way of waiting and of failing."""

    #: Commands that answer at once.
    commands: Redis
    #: Reads that wait for entries: the caller sets the time limit.
    blocking: Redis
    #: Subscriptions: a lost connection is seen, not silently replaced.
    listening: Redis
    clock: ServerClock


@asynccontextmanager
async def open_clients(url: str, options: BusOptions) -> AsyncIterator[Clients]:
    """Connect to ``redis://``, ``rediss://`` or ``unix://``; raises `BusError`, `ConfigError`."""
    async with AsyncExitStack() as stack:
        clients = make_clients(stack, url, options)
        with bus_errors(f"connect to {place_of(clients.commands.connection_pool)}"):
            await clients.clock.measure(clients.commands)
        yield clients


@dataclass(frozen=True, slots=True)
class Address:
    """Where a node of a cluster is."""

    host: str
    port: int


def make_clients(
    stack: AsyncExitStack, url: str, options: BusOptions, at: Address | None = None
) -> Clients:
    """Make connections, which connect when they are used; raises `ConfigError`.

    They go to the server of the URL, or with its user and options to a node elsewhere. Commands
    that fail because the connection broke are sent again for about a second, so each must bear
    being carried out twice. A server that accepts but does not answer costs ``socket_timeout``
    seconds and is not asked again.
    """
    patient = Retry(ExponentialWithJitterBackoff(0.5, 0.05), 3, (RedisConnectionError,))
    # With nothing to retry on, redis-py never reconnects behind our back.
    plain = Retry(NoBackoff(), 0, ())
    commands = _make(stack, url, options, patient)
    blocking = _make(stack, url, options, patient if at is None else plain, MAX_BLOCKING)
    blocking.connection_pool.connection_kwargs["socket_timeout"] = None
    listening = _make(stack, url, options, plain)
    if at is not None:
        for client in (commands, blocking, listening):
            client.connection_pool.connection_kwargs.update(host=at.host, port=at.port)
    return Clients(commands, blocking, listening, ServerClock())


def _make(
    stack: AsyncExitStack,
    url: str,
    options: BusOptions,
    retry: Retry,
    most: int = MAX_CONNECTIONS,
) -> Redis:
    check_url(url)
    try:
        # It waits for a free connection where redis-py's own pool would fail in a burst.
        pool: BlockingConnectionPool = _Pool.from_url(
            url,
            max_connections=most,
            timeout=options.socket_timeout,
            socket_timeout=options.socket_timeout,
            socket_connect_timeout=options.socket_timeout,
            client_name=options.consumer,
            retry=retry,
            **tls_arguments(url, options.tls),
        )
    except ValueError as error:
        raise ConfigError(f"bus.url: {error}") from error
    check_options(url, pool)
    pool.connection_class = _heeding(pool.connection_class)
    # Payloads are bytes, whatever the URL's query asks for.
    pool.connection_kwargs["decode_responses"] = False
    client = Redis.from_pool(pool)
    stack.push_async_callback(client.aclose)
    return client


class _Pool(BlockingConnectionPool):
    """Connections, of which a free one is given at once.

    redis-py takes a lock and sets a timer even where nobody has to wait.
    """

    async def get_connection(self, *_: object, **__: object) -> AbstractConnection:
        """Return a connection, or wait until one is free."""
        if not self.can_get_connection():
            waited: AbstractConnection = await super().get_connection()  # type: ignore[no-untyped-call] # redis-py's
            return waited
        connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call] # redis-py's
        ready = False
        try:
            await self.ensure_connection(connection)
            ready = True
        finally:
            if not ready:
                await self.release(connection)
        return connection


def _heeding(connection: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a kind of connection on which no cancellation is lost, and so no timeout either.

    redis-py sends under `asyncio.wait_for`, which up to Python 3.11 swallows a cancellation that
    arrives as the sending ends.
    """

    class Heeding(connection):  # type: ignore[misc, valid-type] # which kind, the URL tells
        def pack_command(self, *args: str | bytes | float) -> list[bytes]:
            # redis-py's clients without asyncio pack by hiredis, in a tenth of the time
            name = args[0]
            words = (*name.split(), *args[1:]) if isinstance(name, str) and " " in name else args
            packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # of any length
            return [packed]

        async def send_packed_command(self, *args: object, **options: object) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except RuntimeError as error:
                # uvloop's word for a connection that was lost just now; asyncio's is an `OSError`
                raise RedisConnectionError(f"the connection is closed: {error}") from error
            try:
                heed_cancellation()
            except asyncio.CancelledError:
                # the answer to what was sent must not be taken for the answer to the next command
                await self.disconnect(nowait=True)
                raise

    return Heeding


def entries(reply: Any) -> Iterator[tuple[str, list[Entry]]]:  # noqa: ANN401 - as the driver gives it
    """Read a reply to XREADGROUP: streams with their entries, in the shape of any protocol."""
    pairs = reply.items() if isinstance(reply, Mapping) else reply or ()
    for stream, found in pairs:
        # With protocol=3 in the URL, redis-py puts the entries into one more list.
        flat = found[0] if found and isinstance(found[0], list) else found
        yield stream.decode(), [(entry.decode(), fields) for entry, fields in flat if entry]
