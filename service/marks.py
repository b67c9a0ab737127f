"""What a store remembers of rows besides the rows: hidden by hand, fallen out, archived."""

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


class Marks(Protocol):
    """Marks on the rows of a history; none of them deletes a row. Raises `StoreError`."""

    async def fell_out(
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
