"""What the service needs from the world: the bus, the stores, the registry, the counter."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from formatters.model import Message, Row, Tool
from service.inbox import Delivery, Inbox

ReplyKind = Literal["channel", "stream", "list"]

#: ``first`` stores the response and yields to one that is stored already. ``unstored`` is sent only
#: where none is stored. ``again`` is sent whatever is stored.
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


class Outcome(StrEnum):
    """What became of an answer."""

    #: Sent, and the delivery settled.
    SENT = "sent"
    #: Not sent: another answer is stored. The delivery is still this worker's and unsettled.
    ANSWERED = "answered"
    #: Not sent: the delivery is no longer this worker's.
    NOT_MINE = "not_mine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an answer, and how many heard it."""

    outcome: Outcome
    #: Subscribers that a channel reply reached; None for other kinds.
    receivers: int | None = None


class Enqueued(StrEnum):
    """What became of a payload heard on the request channel."""

    ENQUEUED = "enqueued"
    #: Another worker enqueued this copy.
    KNOWN = "known"
    #: The backlog is full; told to one of the workers that heard it, KNOWN to the others.
    REFUSED = "refused"


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

    def now(self) -> datetime:
        """Return the time by the bus's clock, which stamps its entries."""
        ...

    def heard(self) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
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

    async def stored(self, identities: Sequence[Identity]) -> list[StoredResult | None]:
        """Return the answers that these requests already got."""
        ...

    async def finish(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Store, send and settle, each answer in one atomic step, all in one round trip."""
        ...

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to a topic's channel; returns how many subscribers heard it."""
        ...

    async def tell(self, channel: str, payload: bytes) -> int:
        """Send to a channel named in full, as in a `reply_to`; returns how many heard it."""
        ...

    async def append(self, topic: str, payload: bytes) -> str:
        """Add an entry to a stream; returns its id."""
        ...

    @property
    def manifests(self) -> "ManifestStore":
        """Where the manifests of builds are kept for a while."""
        ...

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Subscribe to a channel; the subscription stands when the context is entered."""
        ...

    async def ping(self) -> None:
        """Raise `BusError` unless the bus answers."""
        ...


class ManifestStore(Protocol):
    """Keeps the manifests of builds, packed, for a while. Raises `BusError`."""

    async def put(self, build_id: str, manifest: bytes, ttl_seconds: float) -> None:
        """Keep a manifest for so many seconds, in place of one that the build has."""
        ...

    async def get(self, build_id: str) -> bytes | None:
        """Return a build's manifest, or None where there is none any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """The newest rows of a history, newest first."""

    rows: Sequence[Row] = ()
    #: Rows that the history holds in all, read or not.
    total: int = 0


class HistoryStore(Protocol):
    """Conversations by owner. Raises `StoreError`; never shows one owner's rows to another."""

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows in their order; returns how many were new.

        Idempotent by owner and row id: a row that is stored already is left as it is. A row's own
        ``conversation_id`` goes before the argument.
        """
        ...

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows, ordered by timestamp, then by sequence; newest first.

        Reading stops after ``max_rows`` rows, or with the first row at which the rows' tokens
        reach ``max_tokens``. No conversation reads all of the owner's.
        """
        ...

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the owner's rows with these ids, in their order; those that there are."""
        ...

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        ...

    async def erase(self, owner_key: str) -> int:
        """Delete all rows of an owner; returns how many there were."""
        ...


class ProfileStore(Protocol):
    """What is remembered about an owner. Raises `StoreError`."""

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile (``prompt_overrides``, ``created_at``), or an empty one."""
        ...

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        ...


class ToolRegistry(Protocol):
    """The tools that may be offered to the model, in the order of their registration."""

    @property
    def version(self) -> int:
        """A new number after each change of the definitions; asking for it never blocks."""
        ...

    def get_tool_definition(self, name: str) -> Tool | None:
        """Return one definition, or None."""
        ...

    def get_all_tool_definitions(self) -> list[Tool]:
        """Return all definitions."""
        ...

    def list_tool_names(self) -> list[str]:
        """Return all names."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as a model's tokenizer does."""

    @property
    def name(self) -> str:
        """The tokenizer's name, such as ``o200k_base``."""
        ...

    @property
    def exact(self) -> bool:
        """False where counts are estimates."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens; any string counts, none raises."""
        ...


class Tokenizers(Protocol):
    """Finds the counter for a tokenizer's name."""

    def counter(self, tokenizer: str) -> TokenCounter:
        """Return the counter; one that estimates where the tokenizer is not to be had."""
        ...


class Events(Protocol):
    """Tells what happens to contexts; raises nothing, and promises nothing."""

    async def publish(
        self, topic: str, content: Mapping[str, object], *, owner_key: str, run_id: str | None
    ) -> None:
        """Tell on a topic."""
        ...


class Summarizer(Protocol):
    """Puts in few words what was said. Raises `SummarizerError`, and nothing else."""

    @property
    def name(self) -> str:
        """What makes the summary: a model's name, or a method's."""
        ...

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary of messages given oldest first, of so many tokens at most.

        Every message is read, however many there are; none of them is itself a summary.
        """
        ...
