"""The status of a bus and a store: size, age and lag, for ``ctxb stats`` and ``doctor``.

``ctxb stats --json`` prints the fields of these classes under their names.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """A server of the bus, as it describes itself."""

    #: ``redis`` or ``valkey``.
    product: str
    version: str
    #: Whether every write goes to a file, so that a restart loses nothing.
    durable: bool
    #: The policy when the memory is full.
    eviction: str
    used_bytes: int
    #: 0 for no limit.
    most_bytes: int
    #: Whether it accepts writes; a replica doesn't.
    primary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A stream, and the lag of its consumer group."""

    name: str
    #: Entries that aren't deleted yet: new, pending, and for a while settled ones.
    entries: int
    #: Entries ever added; None if the server doesn't count them, before Redis 7.
    added: int | None
    #: Entries that no worker has taken; None if the server doesn't know.
    lag: int | None
    #: Entries that a worker has taken and not settled.
    pending: int
    #: Age of the oldest of these; 0 if there is none.
    oldest_pending_seconds: float
    #: Whether the consumer group exists.
    grouped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker in the group that reads requests; it joins with its first request."""

    name: str
    #: Entries that it holds.
    pending: int
    #: Since its last read.
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableKey:
    """A key of the bus that can't be used."""

    key: str
    #: The expected type, as Redis names types, or the expected value.
    expected: str
    #: The type of its value; None if that is right, but it is a stream that takes no more entries.
    found: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BusState:
    """A bus at one moment."""

    shards: int
    requests: Sequence[StreamState]
    #: The second entrance of recalls, whose entries are moved to the requests.
    recalls: StreamState
    results: Sequence[StreamState]
    workers: Sequence[WorkerState]
    #: Workers that are subscribed to the request channel.
    listening: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMessage:
    """A message that was published on a channel."""

    #: The topic, or ``reply`` for a response to a channel of its sender's.
    topic: str
    payload: bytes


class BusSurvey(Protocol):
    """A read-only view of the servers of a bus. Raises `BusError`."""

    async def servers(self) -> list[ServerState]:
        """Return what the servers report; raises `ForbiddenError` where that isn't allowed."""

    async def state(self) -> BusState:
        """Return how full the streams are, and who reads them."""

    async def unusable_keys(self) -> list[UnusableKey]:
        """Return the streams, and the key of the number of shards, that can't be used."""

    def unusable_values(self) -> AsyncGenerator[UnusableKey, None]:
        """Search all keys for stored answers, reports and sets of workers of a wrong type."""

    async def clock_offset_seconds(self) -> float:
        """Return the server's time minus this machine's."""

    async def subscriber_limit(self) -> tuple[int, int] | None:
        """Return the bytes that may wait for a slow subscriber: at once, and for a minute.

        0 is no limit; None if the server doesn't report it.
        """

    async def missing_permissions(self) -> list[str] | None:
        """Return the permissions that a worker needs and this user lacks; None if unknown."""

    def monitor(self) -> AbstractAsyncContextManager[AsyncIterator[ChannelMessage]]:
        """Yield all responses and events on channels, from the moment the context is entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """A store at one moment."""

    rows: int
    owners: int
    summaries: int
    #: On disk, including indexes.
    bytes: int
    #: Whether the numbers are counted rather than estimated.
    exact: bool
    #: The server's limit of connections, and those in use; None if the store is a file.
    connections: int | None = None
    connected: int | None = None
    #: The store's time minus this machine's, in seconds; None for a store without a clock.
    ahead_seconds: float | None = None
