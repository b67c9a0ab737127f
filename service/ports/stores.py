"""What the service needs of stores: history, profiles, and flags on rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from formatters.model import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiving:
    """What is written down of rows that fall out of a context."""

    #: Why, by the row's id: codes of `service.budget.decisions`.
    reasons: Mapping[str, str]
    #: The run and the build that left them out.
    run_id: str
    build_id: str
    #: How old copies may get; those of the owner that are older are deleted, at the least.
    retention: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A copy of a row that fell out of its owner's context, with what led to that."""

    row: Row
    reason: str
    run_id: str
    build_id: str
    at: datetime


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


class RowFlags(Protocol):
    """Marks on the rows of a history; none of them deletes a row. Raises `StoreError`."""

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Mark rows as fallen out of their owner's context, and archive them where asked to.

        Returns those that were not marked before, in the order of ``ids``: of several callers,
        one gets each. Ids that are not stored, and rows that are pruned, are left out.
        """
        ...

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return the newest copies in the owner's archive, the last that fell out first."""
        ...

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Hide rows from builds; returns how many were not hidden before."""
        ...

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Show pruned rows again, in their old places; returns how many were hidden."""
        ...

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count what there is of an owner."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """The newest rows of a history, newest first."""

    rows: Sequence[Row] = ()
    #: Rows that the history holds in all, read or not.
    total: int = 0
    #: Of each row, the tokens of all that stand before it: the same in every page, but for rows
    #: that were put or pruned before it. Empty where a store doesn't tell. As text, and as native
    #: messages, where calls and their results count too.
    starts: Sequence[int] = ()
    native_starts: Sequence[int] = ()


class HistoryStore(RowFlags, Protocol):
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
        reach ``max_tokens``. No conversation reads all of the owner's; pruned rows never count.
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
        """Return the rows that terms of `service.recall.terms` tell of, with those around them.

        ``max_rows`` at most, the newest first, all of them older than the row with the id
        ``before``. What is read does not grow with the history: of terms that too many rows have
        only those rows count that have another one too.
        """
        ...

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the owner's rows with these ids, in their order; pruned ones too."""
        ...

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        ...

    async def erase(self, owner_key: str) -> int:
        """Delete all rows of an owner, with marks, archive and summaries; returns how many rows.

        The profile is the `ProfileStore`'s to erase.
        """
        ...

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete the oldest rows from before a moment, ``limit`` at most; returns how many.

        A row goes with its marks and the summaries that cover it; its copy in the archive stays.
        What is left is as if the others had never been. 0 means that no such row was found.
        """
        ...

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment, ``limit`` at most; returns how many."""
        ...


class ProfileStore(Protocol):
    """What is remembered about an owner. Raises `StoreError`."""

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile (``prompt_overrides``, ``created_at``), or an empty one."""
        ...

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        ...

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        ...
