"""A history as it was: the rows of one build and their summaries, and no others."""
# ruff: noqa: ARG002 - it holds the rows of one owner and one reading, and is never written to

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Final

from formatters.model import Row, Summary
from service.errors import StoreError
from service.marks import ArchivedRow, Archiving, HistoryStats
from service.ports import HistoryPage
from service.summaries import Expected, SummaryStore

_READ_ONLY: Final = "a snapshot can only be read"


class Snapshot:
    """The `HistoryStore` that gives all its rows to every reader; they are given oldest first."""

    def __init__(
        self, rows: Sequence[Row], not_read: int, starts: Mapping[str, int] | None = None
    ) -> None:
        self._rows = list(rows)
        self._not_read = not_read
        self._starts = starts or {}

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return all rows, newest first: they are what was read within the bounds."""
        rows = self._rows[::-1]
        ids = takewhile(self._starts.__contains__, (str(row["id"]) for row in rows))
        starts = [self._starts[id_] for id_ in ids]  # what a search had found has none
        return HistoryPage(
            rows=rows,
            total=len(rows) + self._not_read,
            # those of the layout that the build had
            starts=starts,
            native_starts=starts,
        )

    async def search(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        terms: Sequence[str],
        before: str,
        max_rows: int,
    ) -> list[Row]:
        """Return nothing: `recent` has given what was found then."""
        return []

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in their order."""
        named = {row["id"]: row for row in self._rows}
        return [named[name] for name in ids if name in named]

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows, newest first."""
        return self._rows[::-1][:limit]

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Raise `StoreError`: what is past can't be written to."""
        raise StoreError(_READ_ONLY)

    async def erase(self, owner_key: str) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def expire(self, before: datetime, limit: int) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def fell_out(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def prune(self, owner_key: str, ids: Sequence[str]) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def restore(self, owner_key: str, ids: Sequence[str]) -> int:
        """Raise `StoreError`, as `append` does."""
        raise StoreError(_READ_ONLY)

    async def archived(self, owner_key: str, limit: int) -> list[ArchivedRow]:
        """Return nothing: nothing falls out of what is past."""
        return []

    async def stats(self, owner_key: str) -> HistoryStats:
        """Count the rows."""
        return HistoryStats(rows=len(self._rows))


class SummarySnapshot:
    """The `SummaryStore` that has some of another's summaries, and is never written to."""

    def __init__(self, store: SummaryStore, ids: Collection[str]) -> None:
        self._store = store
        self._ids = ids

    async def read(self, owner_key: str, conversation_id: str | None = None) -> Sequence[Summary]:
        """Return those of the summaries that there are still."""
        found = await self._store.read(owner_key, conversation_id)
        return [summary for summary in found if summary.id in self._ids]

    async def put(
        self, summary: Summary, expected: Expected, *, replaces: Collection[str] = ()
    ) -> bool:
        """Put nothing."""
        return False

    async def forget(self, owner_key: str, message_ids: Collection[str]) -> int:
        """Forget nothing."""
        return 0

    async def claim(self, owner_key: str, token: str, seconds: float) -> bool:
        """Give nobody the right to summarise what is past."""
        return False

    async def release(self, owner_key: str, token: str) -> None:
        """Do nothing."""
