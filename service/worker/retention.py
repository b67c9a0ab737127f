"""Deletes history and archived copies that are older than the settings allow, in small steps."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from service.config.settings import Settings
from service.ports.stores import Clock, HistoryRetention

log = structlog.get_logger(__name__)

#: Seconds between two checks for expired rows.
INTERVAL: Final = 60.0
#: How often the archive is checked where `events.archive` is off: copies that were made while it
#: was on still have to go.
ARCHIVE_OFF_INTERVAL: Final = timedelta(days=1)
#: Rows deleted in one transaction, which takes a database some milliseconds.
BATCH: Final = 200
#: Seconds between two transactions, so that deleting takes a small part of the store's time.
PAUSE: Final = 0.05


class Retention:
    """Deletes expired rows and archived copies; several workers may do so at a time."""

    def __init__(
        self,
        history: HistoryRetention,
        settings: Settings,
        clock: Clock,
        *,
        batch: int = BATCH,
    ) -> None:
        self._history = history
        self._max_row_age = _days(settings.store.retention_days)
        self._max_copy_age = _days(settings.events.retention_days)
        self._archive_interval = timedelta() if settings.events.archive else ARCHIVE_OFF_INTERVAL
        self._next_archive_check: datetime | None = None
        self._clock = clock
        self._batch = batch

    async def enforce(self) -> None:
        """Delete all that has expired by now; raises `StoreError`."""
        rows = await self._delete(self._history.expire, self._max_row_age)
        copies = await self._enforce_archive()
        if rows or copies:
            log.info("retention.deleted", rows=rows, copies=copies)

    async def _enforce_archive(self) -> int:
        now = self._clock()
        if self._next_archive_check is not None and now < self._next_archive_check:
            return 0
        copies = await self._delete(self._history.expire_archive, self._max_copy_age)
        self._next_archive_check = now + self._archive_interval
        return copies

    async def _delete(
        self, expire: Callable[[datetime, int], Awaitable[int]], max_age: timedelta | None
    ) -> int:
        """Delete in batches until nothing expired is found; returns how many items there were."""
        if max_age is None:
            return 0
        before, deleted = self._clock() - max_age, 0
        while count := await expire(before, self._batch):
            deleted += count
            await asyncio.sleep(PAUSE)
        return deleted


def _days(days: float | None) -> timedelta | None:
    return None if days is None else timedelta(days=days)
