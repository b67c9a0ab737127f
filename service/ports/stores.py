"""The ports of stores: history, which builds only read, profiles, summaries, vectors of rows."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from cachetools import LRUCache

from formatters.model import Row, Summary
from service.wire.payload import canonical_json

#: Characters of a message for which stores count the tokens of its text, with the mark of the cut:
#: as many as ``[SHARED_MEMORY]`` prints. If fewer are shown, more messages fit than counted.
STORED_CHARS: Final = 500

#: Returns the current time, with its zone.
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """The newest rows of a history, newest first."""

    rows: Sequence[Row] = ()
    #: Number of rows in the history, on this page or not.
    total: int = 0
    #: For each row, the tokens of all rows before it, as text and as native messages with their
    #: calls and results. The same on every page, unless rows are added or pruned before it. Empty
    #: if the store doesn't count them.
    starts: Sequence[int] = ()
    native_starts: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStats:
    """The counts of an owner's data in a store."""

    #: Rows that builds may read, and the tokens that the memory block prints of them.
    rows: int = 0
    tokens: int = 0
    #: Rows pruned by hand, rows that once fell out of a context, and copies in the archive.
    pruned: int = 0
    fallen: int = 0
    archived: int = 0
    summaries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiving:
    """The archive's record of rows that fall out of a context."""

    #: By the row's id, why it fell out: codes of `service.budget.decisions`.
    reasons: Mapping[str, str]
    #: The run and the build that left the rows out.
    run_id: str
    build_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A copy of a row that fell out of its owner's context, and why it did."""

    row: Row
    reason: str
    run_id: str
    build_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The terms to look for, in at most ``max_rows`` rows older than the row ``before``."""

    #: Terms of `service.recall.terms`.
    terms: Sequence[str]
    before: str
    max_rows: int
    #: Rows that are hits whatever their terms, the best first: numbers of `NumberedVector`.
    similar: Sequence[int] = ()
    #: The begin and the end, which isn't included, of times whose rows are hits, too.
    spans: Sequence[tuple[datetime, datetime]] = ()


class HistoryReader(Protocol):
    """Reads conversations by owner, and never returns another owner's rows."""

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows, ordered by timestamp, then by sequence; newest first.

        Reading stops after ``max_rows`` rows, or with the row at which the rows' tokens reach
        ``max_tokens``. Without a conversation, all of the owner's rows are read; pruned rows never
        count.
        """

    async def search(
        self, owner_key: str, conversation_id: str | None, request: SearchRequest
    ) -> Sequence[Row]:
        """Return the rows that match the terms best, with rows around them.

        They come newest first. The work doesn't grow with the history: a row that only has terms of
        too many rows needs two of them to match.
        """

    async def rows(self, owner_key: str, ids: Sequence[str], *, pruned: bool = True) -> list[Row]:
        """Return the owner's rows with these ids, in this order; by default pruned ones too."""

    async def around(
        self, owner_key: str, conversation_id: str | None, row_id: str, *, before: int, after: int
    ) -> list[Row]:
        """Return a row with at most ``before`` and ``after`` rows around it, oldest first.

        Pruned rows don't count. Empty if the scope has no such row, or it is pruned.
        """


class HistoryStore(HistoryReader, Protocol):
    """A store of histories. Raises `StoreError`.

    A row can be hidden by hand (pruned), fallen out of its owner's context, and archived. None of
    these flags deletes it.
    """

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows in their order; returns how many were new.

        Idempotent by owner and row id: a row that is already stored stays as it is. A row's own
        ``conversation_id`` takes precedence over the argument.
        """

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Flag rows as fallen out of their owner's context; with ``archiving``, also archive them.

        Returns the rows that were not flagged before, in the order of ``ids``; of several callers
        exactly one gets each row. Unknown ids and pruned rows are left out.
        """

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the owner's archive, newest first."""

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows from builds; returns how many were not hidden before."""

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again, in their old positions; returns how many were hidden."""

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what the store holds of an owner."""

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete at most ``limit`` of the oldest rows from before a moment; returns how many.

        Flags of a row and summaries that cover it are deleted with it; its copy in the archive
        stays. The other rows are as if it had never been there. 0 means that none has expired.
        """

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment, at most ``limit``; returns how many."""

    async def erase(self, owner_key: str) -> int:
        """Delete an owner's rows, flags, archive and summaries; returns how many rows there were.

        The `ProfileStore` erases the profile.
        """

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first.

        No product code calls it; it is a source system's name for `recent`: ``docs/porting.md``.
        """


class ProfileStore(Protocol):
    """Profiles of owners. Raises `StoreError`."""

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile (``prompt_overrides``, ``created_at``), or an empty one."""

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""


#: Limit of the `FailedScopes` that a process remembers.
MAX_FAILED_SCOPES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Scope:
    """A history that has its own summaries: one conversation, or all of an owner's rows."""

    owner_key: str
    conversation_id: str | None = None


#: The scopes whose last summary failed, as far as this process knows; with the number of builds to
#: skip before the next attempt, and how many of these are still to come.
FailedScopes = LRUCache[Scope, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The state of a history that a new summary was made from; the store checks it again."""

    #: The ids of all summaries that the scope has.
    summaries: frozenset[str]
    #: The newest row that the summary covers, and how many rows the scope has up to and including
    #: it: a row that arrives late or is deleted changes the number.
    last_id: str
    rows: int


class SummaryStore(Protocol):
    """Summaries of histories, whose rows stay. Raises `StoreError`.

    Erasing an owner's history erases them. A summary never changes; a new one replaces it.
    """

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return the summaries of a scope in the order of the oldest rows that they cover."""

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Add a summary in place of others, in one step; returns whether it was added.

        It is added only if the scope's state is as expected and the covered rows still have the
        summary's fingerprint.
        """

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Delete the summaries that cover any of these rows; returns how many there were.

        Callers that remove rows from a history have to call it.
        """

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Take a lease on summarising an owner's history; returns False if another holds it.

        The lease expires after ``seconds``. Its holder may renew it.
        """

    async def release(self, owner_key: str, token: str) -> None:
        """Give the lease back, if ``token`` still holds it."""


def rows_fingerprint(rows: Iterable[Row]) -> str:
    """Return a hash of rows, in the order of a summary, that changes when one of them does."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(canonical_json(row))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """Rows of an owner, in the order of their arrival, that have no vector yet."""

    owner_key: str
    rows: Sequence[Row]
    #: Numbers of the store: of this call, and of the last of the rows.
    claim: int = 0
    last: int = 0


class NumberedVector(NamedTuple):
    """The vector of a row, and how a store finds the row."""

    #: Its number in the order of arrival.
    number: int
    id: str
    conversation_id: str | None
    packed: bytes


class VectorStore(Protocol):
    """Vectors of rows that may be recalled. Raises `StoreError`.

    They are bytes to a store. It keeps them with the rows and the name of the model that made
    them, and deletes them with the rows. Its queue has an entry for each owner with rows that have
    no vector; of several callers, each gets another owner.
    """

    @property
    def is_local(self) -> bool:
        """Whether it is in this process, so that builds can wait until all rows have a vector."""

    def follow(self) -> None:
        """From now on, queue the owners of rows that this process appends or restores."""

    async def queue_missing(self, model: str) -> None:
        """Queue the owners of rows that were stored while no vectors were, or by another model."""

    async def take(
        self, model: str, limit: int, owner_key: str | None = None
    ) -> WaitingRows | None:
        """Return at most ``limit`` rows of one owner without a vector of a model; None if none.

        With ``owner_key`` of this owner, which local stores know alone, else of any. Rows that get
        no vector are returned again after a minute.
        """

    async def put(self, waiting: WaitingRows, model: str, vectors: Mapping[str, bytes]) -> None:
        """Store the vectors of rows that were taken, by id; rows deleted meanwhile get none."""

    async def read(self, owner_key: str, model: str, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors of a model that the owner's rows with these ids have, by id."""

    async def newest(
        self, owner_key: str, model: str, limit: int, after: int
    ) -> Sequence[NumberedVector]:
        """Return the vectors of a model that the newest rows have, newest first.

        The newest rows are those that arrived last, of those that get vectors: at most ``limit``,
        all of them after the number ``after``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores of history, profiles, summaries and vectors, opened together."""

    history: HistoryStore
    profiles: ProfileStore
    summaries: SummaryStore
    vectors: VectorStore
