"""The bus as the service uses it: requests in, responses, build reports and events out.

A topic is a name without the configured prefix (`service.wire.protocol.Topics`); the bus adds the
prefix. A channel is named in full.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Protocol

from service.errors import BusError
from service.wire.protocol import Topics
from service.wire.response import StoredResult

# --- requests and their streams --------------------------------------------------------------


#: The field of a request that came on a topic of recalls, and is one whatever its content. It has
#: the id of the entry that was moved, which is empty if the request came on the channel.
RECALL_FIELD: Final = "recall"
#: Why an entry without a payload can't be read.
NO_DATA: Final = "the entry has no field `data`, or an empty one; this field holds the JSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An entry that this worker has read and not settled."""

    #: The stream that it came from.
    source: str
    #: The entry's id in that stream.
    token: str
    #: The field ``data``; empty if the entry has none.
    payload: bytes
    #: When the entry was written, or the one that was moved here, by the bus's clock.
    received_at: datetime
    #: 1 for the first delivery.
    attempt: int
    #: How many more requests of its lane each worker has to expect; None unless its owner has
    #: many.
    behind: int | None = None
    #: Whether it came on a topic of recalls.
    recall: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """Return what sorts the entries of a stream."""
        return tuple(map(int, self.token.split("-")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """The unsettled entries of an inbox."""

    #: Entries that no worker has taken; None if the server doesn't know.
    lag: int | None
    #: Entries that a worker has taken and not settled.
    pending: int
    #: Age of the oldest of these; 0 if there is none.
    oldest_pending_seconds: float


def lane_of(owner_key: str) -> str:
    """Return the end of the name of the lane for the requests of an owner that has many.

    There are 256; owners whose keys give the same name share one.
    """
    return hashlib.sha1(owner_key.encode(), usedforsecurity=False).hexdigest()[:2]


class Inbox(Protocol):
    """Streams read by a consumer group: each entry goes to one worker until it is acknowledged.

    A delivery is leased: unless the worker renews it, another worker may claim it when the lease
    has expired. `renew`, `set_attempts` and `release` ignore deliveries that this worker no
    longer holds. All methods raise `BusError` if the bus does not answer, and can be called again.
    """

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""

    @property
    def crowded(self) -> bool:
        """Return whether entries are known to wait for `receive_fairly`."""

    async def receive_fairly(self, slots: int, *, heavy: int) -> list[Delivery]:
        """Return at most ``slots`` entries at once, of each owner in turn, oldest first.

        It sorts what no worker has received yet, for all workers. At most ``heavy`` of the entries
        are of owners with many.
        """

    async def claim(self, slots: int, *, counted: bool = True) -> list[Delivery]:
        """Take over at most ``slots`` entries with expired leases, and increment their attempt.

        Unless ``counted``, it is incremented in the deliveries only: `set_attempts` counts them.
        """

    async def find_earlier(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the entries that were read, aren't settled, and precede the last of these.

        They are of the same streams, and any worker may hold them; without ``deliveries``.
        """

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the leases of deliveries."""

    async def set_attempts(self, deliveries: Sequence[Delivery], attempts: int) -> None:
        """Extend the leases of deliveries, and set how many attempts are counted."""

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """End the leases of deliveries now, so that another worker can claim them."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that need no answer."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Copy an entry to the dead-letter stream and settle it, in one atomic step.

        Return False if that stream can't be used: then the entry stays unsettled.
        """

    async def trim(self) -> None:
        """Delete the entries that every group has read and settled."""

    async def depth(self) -> Depth:
        """Return the number of unread and pending entries."""

    async def leave(self) -> None:
        """Remove this worker from the group, unless it still holds entries."""


# --- answers ---------------------------------------------------------------------------------

ReplyKind = Literal["channel", "stream", "list"]

#: ``first``: sent and stored, unless an answer is stored already. ``unstored``: the same, but not
#: stored. ``again``: sent, unless another worker has settled the delivery.
AnswerMode = Literal["first", "unstored", "again"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a request: requests of an owner with the same id are copies of one."""

    owner_key: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response to send, and the delivery that it settles."""

    delivery: Delivery
    identity: Identity
    fingerprint: str
    response: bytes
    reply_to: str
    reply_kind: ReplyKind = "channel"
    mode: AnswerMode = "first"
    #: The reason to dead-letter the request as well; None if it shall not be.
    dead_letter: str | None = None


class AnswerOutcome(StrEnum):
    """The outcome of sending an answer."""

    #: Sent, and the delivery is settled.
    SENT = "sent"
    #: Not sent: another answer is stored. This worker still holds the delivery.
    ANSWERED = "answered"
    #: Not sent: this worker no longer holds the delivery.
    NOT_MINE = "not_mine"
    #: Neither sent nor stored: the bus forbids this worker to write to the list or stream of the
    #: reply. This worker still holds the delivery.
    FORBIDDEN = "forbidden"
    #: Not settled: the bus answers, but reports an error for this answer. It can be sent again.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The outcome of sending an answer, and the number of its receivers."""

    outcome: AnswerOutcome
    #: Subscribers that got the reply; None if unknown, or if the reply went to no channel.
    receivers: int | None = None
    #: The error, if the outcome is ``FAILED``.
    error: BusError | None = None


class Enqueued(StrEnum):
    """The outcome of moving a payload from the request channel to the request stream."""

    ENQUEUED = "enqueued"
    #: Another worker enqueued this copy.
    KNOWN = "known"
    #: The backlog is full. One of the workers that received the payload gets this; the others get
    #: KNOWN, so that the request is refused once.
    REFUSED = "refused"
    #: The node of the cluster that has the stream is unavailable; retry.
    UNAVAILABLE = "unavailable"
    #: The stream's key has another type, or the stream takes no more entries; reported to one of
    #: the workers, as REFUSED is.
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An entry of the dead-letter stream; fields that the entry lacks are empty."""

    id: str
    payload: bytes
    reason: str
    #: The stream that it came from, and its id there.
    source: str
    entry: str
    #: Deliveries, including the last one.
    attempts: int
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Counts of what was deleted for an owner, and of what remains."""

    results: int = 0
    reports: int = 0
    dead_letters: int = 0
    #: Dead letters whose owner can't be determined. They remain.
    unreadable: int = 0
    #: Entries of the owner on the streams. They remain until they are settled.
    waiting: int = 0


class Bus(Protocol):
    """The transport of requests, responses and events.

    Its methods raise `BusError` if the bus does not answer, and can be called again then. The
    adapter reconnects by itself.
    """

    # --- requests --------------------------------------------------------------------------------

    @property
    def requests(self) -> Inbox:
        """The request streams, in the group ``context-builders``."""

    async def submit(self, payload: bytes, *, recall: str | None = None) -> str:
        """Add a request to its stream, where it waits for a worker; return the entry's id.

        ``recall`` is the id of its entry in the stream of recalls, if it is moved from there.
        """

    @property
    def recalls(self) -> Inbox:
        """The stream of recalls, in this group; workers move its entries to the request streams."""

    def subscribe_requests(
        self, topic: str = Topics.CONTEXT_BUILD_REQUEST
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Subscribe to a channel of requests; yields payloads in batches, across reconnects."""

    async def enqueue(
        self, payloads: Sequence[bytes], topic: str = Topics.CONTEXT_BUILD_REQUEST
    ) -> list[Enqueued]:
        """Add payloads from a channel of requests to their streams.

        Every subscribed worker receives each payload, and one of them enqueues it. A payload that
        this worker receives a second time is a retry and is enqueued again.
        """

    @property
    def request_shards(self) -> "RequestShards":
        """The streams that requests are spread over."""

    # --- answers ---------------------------------------------------------------------------------

    async def find_results(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the stored answer of each request, or None."""

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store and send answers and settle their deliveries, in one round trip.

        Each answer is one atomic step, and its errors are in its receipt. After a `BusError` all
        answers can be sent again: a first answer that was sent, though its receipt was lost, counts
        as sent and isn't sent twice.
        """

    async def publish_to(self, channel: str, payload: bytes) -> int:
        """Publish on a channel, such as a ``reply_to``; return the number of its subscribers."""

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield the payloads of a channel, from when its ``async with`` begins."""

    # --- results and events ----------------------------------------------------------------------

    @property
    def results(self) -> Inbox:
        """The streams of rows (`service.wire.protocol.ROW_TOPICS`), in the recorder's group."""

    async def publish(self, topic: str, payload: bytes) -> int:
        """Publish on the channel of a topic; return the number of its subscribers."""

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to the stream of a topic; return its id."""

    # --- upkeep ----------------------------------------------------------------------------------

    @property
    def reports(self) -> "ReportStore":
        """The recent build reports."""

    @property
    def dead_letters(self) -> "DeadLetters":
        """The entries of the dead-letter stream."""

    async def renumber(self) -> list[str]:
        """Recreate streams that have run out of ids, so that they take entries again.

        Returns their names. Unread and pending entries remain so; each stream is one atomic step.
        """

    async def forget(self, owner_key: str, *, dry_run: bool = False) -> Forgotten:
        """Delete an owner's stored answers, build reports and dead letters, or only count them.

        Data that is written meanwhile may be missed; another call deletes it.
        """

    def now(self) -> datetime:
        """Return the time of the bus's clock, which stamps its entries."""

    async def ping(self) -> None:
        """Raise `BusError` unless the bus answers."""

    @property
    def resubscribed(self) -> int:
        """How often channels of requests were subscribed again; requests may have been missed."""

    @property
    def dropped(self) -> int:
        """The number of requests dropped because they arrived faster than they were taken."""

    @property
    def forbidden(self) -> int:
        """The number of answers not sent because the bus forbids it."""


class ReportStore(Protocol):
    """Keeps compressed build reports for a limited time. Raises `BusError`."""

    async def put(self, reports: Mapping[str, bytes], ttl_seconds: float) -> None:
        """Store reports by build id in one round trip, replacing those with the same ids."""

    async def get(self, build_id: str) -> bytes | None:
        """Return the report of a build; None if there is none or it has expired."""

    async def existing(self, build_ids: Sequence[str]) -> frozenset[str]:
        """Return the builds that have a report, in one round trip."""


class DeadLetters(Protocol):
    """The entries of the dead-letter stream, for operators to retry or drop. Raises `BusError`."""

    def scan(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the present entries, without those that are added meanwhile."""

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry; None if it doesn't exist."""

    async def retry(self, ids: Sequence[str]) -> int:
        """Move entries back to the streams that they came from; return how many were moved.

        Each is moved in one atomic step and becomes a new entry. Entries that no longer exist, or
        came from a stream that isn't read here, aren't moved.
        """

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; return how many existed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStream:
    """A stream of requests, and how full it is."""

    name: str
    #: Entries that aren't deleted yet: unread, pending, and for a while settled ones.
    entries: int
    #: Entries that were read and aren't settled.
    pending: int


class RequestShards(Protocol):
    """The streams that requests are spread over by their owners. Raises `BusError`."""

    async def count(self) -> int:
        """Return the number of streams."""

    async def set_count(self, count: int) -> None:
        """Set the number of streams; workers and producers adopt it after a while.

        Raises:
            ConfigError: The bus doesn't support this number.
        """

    async def streams(self) -> list[RequestStream]:
        """Return the streams in use, and former ones that still have entries."""
