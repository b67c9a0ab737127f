"""The ports of stores: history, by its users, and profiles.

`HistoryStore` is what adapters implement. Its users need a part of it: builds read
(`HistoryReader`), recorders append, workers and operators set flags (`RowFlags`), and retention
deletes (`HistoryRetention`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from formatters.model import Row
from service.ports.summaries import SummaryStore

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
    """What a store holds of an owner."""

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
    """What the archive notes of rows that fall out of a context."""

    #: By the row's id, why it fell out: codes of `service.budget.decisions`.
    reasons: Mapping[str, str]
    #: The run and the build that left the rows out.
    run_id: str
    build_id: str
    #: The age at which copies expire; at least the owner's own expired copies are deleted.
    retention: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A copy of a row that fell out of its owner's context, and why it did."""

    row: Row
    reason: str
    run_id: str
    build_id: str
    at: datetime


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
        ...

    async def search(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        terms: Sequence[str],
        before: str,
        max_rows: int,
    ) -> list[Row]:
        """Return the rows that match terms of `service.recall.terms` best, with rows around them.

        These are at most ``max_rows``, newest first, all older than the row with the id ``before``.
        The work doesn't grow with the history: a row that only has terms of too many rows needs
        two of them to match.
        """
        ...

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the owner's rows with these ids, in their order; pruned ones too."""
        ...


class RowFlags(Protocol):
    """Sets and reads the flags of rows: hidden by hand (pruned), fallen out, archived.

    None of these methods deletes a row.
    """

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Flag rows as fallen out of their owner's context, and archive them with ``archiving``.

        Returns the rows that were not flagged before, in the order of ``ids``; of several callers
        exactly one gets each row. Unknown ids and pruned rows are left out.
        """
        ...

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the owner's archive, newest first."""
        ...

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows from builds; returns how many were not hidden before."""
        ...

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again, in their old positions; returns how many were hidden."""
        ...

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what the store holds of an owner."""
        ...


class HistoryRetention(Protocol):
    """Deletes what has grown too old, of any owner."""

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete the oldest rows from before a moment, at most ``limit``; returns how many.

        Flags of a row and summaries that cover it are deleted with it; its copy in the archive
        stays. The other rows are as if it had never been there. 0 means that none has expired.
        """
        ...

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment, at most ``limit``; returns how many."""
        ...


class HistoryStore(HistoryReader, RowFlags, HistoryRetention, Protocol):
    """All that a store of histories does. Raises `StoreError`."""

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows in their order; returns how many were new.

        Idempotent by owner and row id: a row that is already stored stays as it is. A row's own
        ``conversation_id`` takes precedence over the argument.
        """
        ...

    async def erase(self, owner_key: str) -> int:
        """Delete an owner's rows, flags, archive and summaries; returns how many rows there were.

        The `ProfileStore` erases the profile.
        """
        ...

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first.

        No product code calls it; it is a source system's name for `recent`, see ``docs/names.md``.
        """
        ...


class ProfileStore(Protocol):
    """Profiles of owners. Raises `StoreError`."""

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile (``prompt_overrides``, ``created_at``), or an empty one."""
        ...

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        ...

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores of history, profiles and summaries, opened together."""

    history: HistoryStore
    profiles: ProfileStore
    summaries: SummaryStore
