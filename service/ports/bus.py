"""What the service needs of a bus: requests in, answers out, build reports and events."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from service.errors import BusError
from service.ports.stream import Delivery, Inbox

ReplyKind = Literal["channel", "stream", "list"]

#: ``first`` is stored, and yields to one that is; ``unstored`` yields as well; ``again`` is sent,
#: unless the delivery was settled by another worker.
AnswerMode = Literal["first", "unstored", "again"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two requests the same one."""

    owner_key: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """The answer that a request already got."""

    #: Of the request that was answered; another one under the same identity is a conflict.
    fingerprint: str
    #: The response as JSON; None where it was larger than the bus stores.
    response: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response on its way out, with the delivery that it settles."""

    delivery: Delivery
    identity: Identity
    fingerprint: str
    response: bytes
    reply_to: str
    reply_kind: ReplyKind = "channel"
    mode: AnswerMode = "first"
    #: Why the request goes to the dead letter as well, where it does.
    dead_letter: str | None = None


class AnswerOutcome(StrEnum):
    """What became of an answer."""

    #: Sent, and the delivery settled.
    SENT = "sent"
    #: Not sent: another answer is stored. The delivery is still this worker's and unsettled.
    ANSWERED = "answered"
    #: Not sent: the delivery is no longer this worker's.
    NOT_MINE = "not_mine"
    #: Neither sent nor stored: the bus forbids this worker to write to the list or stream that the
    #: reply should go to. The delivery is still this worker's and unsettled.
    FORBIDDEN = "forbidden"
    #: Not settled: the bus is there, but fails at this answer. It can be finished again.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an answer, and how many heard it."""

    outcome: AnswerOutcome
    #: Subscribers that a channel reply reached; None for other kinds, and where it is not known.
    receivers: int | None = None
    #: Why it failed, where it did.
    error: BusError | None = None


class Enqueued(StrEnum):
    """What became of a payload heard on the request channel."""

    ENQUEUED = "enqueued"
    KNOWN = "known"  # another worker enqueued this copy
    #: The backlog is full; told to one of the workers that heard it, KNOWN to the others.
    REFUSED = "refused"
    AWAY = "away"  # its node of a cluster is: to be tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An entry of the dead letter; what it lacks, where something else wrote it, is empty."""

    id: str
    payload: bytes
    reason: str
    #: The stream that it came from, and its id there.
    source: str
    entry: str
    #: Deliveries, the last included.
    attempts: int
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What a bus held of an owner, and what it can't or won't delete."""

    results: int = 0
    reports: int = 0
    dead_letters: int = 0
    #: Dead letters that don't say whose they are. They stay.
    unreadable: int = 0
    #: Entries of the owner that stand on the streams. They stay until they are settled.
    waiting: int = 0


class Bus(Protocol):
    """The one place where requests come from and responses go to."""

    @property
    def requests(self) -> Inbox:
        """Requests, in the group ``context-builders``."""
        ...

    @property
    def results(self) -> Inbox:
        """Rows on `llm.results` and `tools.results`, in the recorder's group."""
        ...

    @property
    def resubscribed(self) -> int:
        """Return how often the request channel was lost and found: requests may be missing."""
        ...

    @property
    def dropped(self) -> int:
        """Return how many requests came over the channel faster than they were taken."""
        ...

    @property
    def forbidden(self) -> int:
        """Return how many answers this bus found forbidden, and so did not send."""
        ...

    def now(self) -> datetime:
        """Return the time by the bus's clock, which stamps its entries."""
        ...

    def subscribe_requests(self) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Listen on the request channel; yields what came in, in batches, across reconnects."""
        ...

    async def enqueue(self, payloads: Sequence[bytes]) -> list[Enqueued]:
        """Put what was heard into the request stream, each copy once over all workers.

        A payload that this worker hears a second time is a retry and is enqueued again.
        """
        ...

    async def submit(self, payload: bytes) -> str:
        """Put a request into the stream durably; returns the entry's id."""
        ...

    async def find_results(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the answers that these requests already got."""
        ...

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and settle, each answer in one atomic step, all in one round trip.

        Each fares as if it were alone: an error of its own stands in its receipt. Raises `BusError`
        where the bus does not answer. All can be finished again then: a first answer that is out,
        though its receipt was lost, counts as sent, and does not go out twice.
        """
        ...

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns how many subscribers heard it."""
        ...

    async def publish_to(self, channel: str, payload: bytes) -> int:
        """Send to a channel named in full, as in a `reply_to`; returns how many heard it."""
        ...

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        ...

    @property
    def reports(self) -> "ReportStore":
        """Where the reports of builds are kept for a while."""
        ...

    @property
    def dead_letters(self) -> "DeadLetters":
        """Entries that could not be answered, for people to settle by hand."""
        ...

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, build reports and dead letters, or only count them.

        What comes while it looks may be left; then another call finds it.
        """
        ...

    @property
    def request_shards(self) -> "RequestShards":
        """How many streams requests are spread over."""
        ...

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Subscribe to a channel; the subscription stands when the context is entered."""
        ...

    async def ping(self) -> None:
        """Raise `BusError` unless the bus answers."""
        ...


class ReportStore(Protocol):
    """Keeps the reports of builds, compressed, for a while. Raises `BusError`."""

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Store reports by build id, all in one round trip; a later report replaces an earlier."""
        ...

    async def get(self, build_id: str) -> bytes | None:
        """Return the report of a build, or None if it has none, or none any longer."""
        ...

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return which of these builds have a report, in one round trip."""
        ...


class DeadLetters(Protocol):
    """Entries that could not be answered, until somebody settles them. Raises `BusError`."""

    def scan(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that there are now; those that come meanwhile are left out."""
        ...

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None where it isn't there any more."""
        ...

    async def retry(self, ids: Sequence[str]) -> int:
        """Put payloads back on the streams that they came from, as new entries.

        Each leaves the dead letter in the same step. Returns how many did; those that are gone, or
        came from no stream that is read here, did not.
        """
        ...

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many were there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStream:
    """A stream of requests, and how full it is."""

    name: str
    #: Entries that nobody has read, or that are not settled, or not yet deleted.
    entries: int
    #: Entries in somebody's hands.
    pending: int


class RequestShards(Protocol):
    """How many streams requests are spread over, by their owner. Raises `BusError`."""

    async def count(self) -> int:
        """Return how many they are."""
        ...

    async def set_count(self, count: int) -> None:
        """Say how many there are to be from now on; raises `ConfigError` where that can't be.

        Workers and producers notice it after a while.
        """
        ...

    async def streams(self) -> list[RequestStream]:
        """Return those that are in use, and others in which something is left."""
        ...
