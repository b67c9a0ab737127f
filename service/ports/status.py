"""What those see who look after a bus and a store: how full, how old, how far behind."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """A server of the bus, as it tells of itself."""

    #: ``redis`` or ``valkey``.
    product: str
    version: str
    #: Whether every write goes to a file, so that a restart forgets nothing.
    durable: bool
    #: What it does when its memory is full.
    eviction: str
    used_bytes: int
    #: 0 for no limit.
    most_bytes: int
    #: Whether it takes writes: a replica doesn't.
    primary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A stream, and how far the group that reads it is behind."""

    name: str
    #: Entries that are not deleted yet: new ones, those in work, and settled ones for a while.
    entries: int
    #: Entries that there ever were; None where the server doesn't count them, before Redis 7.
    added: int | None
    #: Entries that nobody has read; None where the server can't tell.
    lag: int | None
    #: Entries in somebody's hands.
    pending: int
    #: How long ago the oldest of those was written; 0 where there is none.
    oldest_pending_seconds: float
    #: Whether the group that reads it is there.
    grouped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker in the group that reads requests; one that never read any is not in it."""

    name: str
    #: Entries in its hands.
    pending: int
    #: Since it last asked for some.
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BusState:
    """A bus at one moment."""

    shards: int
    requests: Sequence[StreamState]
    results: Sequence[StreamState]
    workers: Sequence[WorkerState]
    #: Workers that listen on the request channel, whether they ever read a request or not.
    listening: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message of a channel."""

    #: The topic, or ``reply`` for an answer to a channel of its sender's.
    topic: str
    payload: bytes


class BusSurvey(Protocol):
    """Looks at the servers of a bus, and changes nothing there. Raises `BusError`."""

    async def servers(self) -> list[ServerState]:
        """Return what the servers tell of themselves; `ForbiddenError` where that isn't allowed."""
        ...

    async def state(self) -> BusState:
        """Return how full the streams are, and who reads them."""
        ...

    async def ahead_seconds(self) -> float:
        """Return by how much the server's clock is before this machine's; negative behind it."""
        ...

    async def subscriber_limit(self) -> tuple[int, int] | None:
        """Return what a slow subscriber may have waiting: bytes at once, and for a minute.

        0 is no limit; None where the server doesn't say.
        """
        ...

    async def denied(self) -> list[str] | None:
        """Return what a worker needs and may not do as this user; None where none can tell."""
        ...

    def overhear(self) -> AbstractAsyncContextManager[AsyncIterator[Heard]]:
        """Listen to all answers and events on channels; the subscriptions stand when entered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """A store at one moment."""

    rows: int
    owners: int
    summaries: int
    #: On disk, indexes included.
    bytes: int
    #: Whether the numbers of rows are counted, not estimated.
    exact: bool
    #: Connections that there are for all processes, and those in use; None where none are counted.
    connections: int | None = None
    connected: int | None = None
    #: By how much its clock is before this machine's, in seconds; None where it has none.
    ahead_seconds: float | None = None
