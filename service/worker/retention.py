"""Deletes history and archived copies that are older than the settings allow, in small steps."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from service.config.settings import Settings
from service.ports.stores import Clock, HistoryStore

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

    def __init__(self, history: HistoryStore, settings: Settings, clock: Clock) -> None:
        self._history = history
        self._settings = settings
        self._clock = clock
        self._next_archive_check = clock()

    async def enforce(self) -> None:
        """Delete all that has expired by now; raises `StoreError`."""
        rows = await self._delete(self._history.expire, self._settings.store.retention_days)
        copies = 0
        if self._clock() >= self._next_archive_check:
            days = self._settings.events.retention_days
            copies = await self._delete(self._history.expire_archive, days)
            if not self._settings.events.archive:
                self._next_archive_check = self._clock() + ARCHIVE_OFF_INTERVAL
        if rows or copies:
            log.info("retention.deleted", rows=rows, copies=copies)

    async def _delete(
        self, expire: Callable[[datetime, int], Awaitable[int]], days: float | None
    ) -> int:
        """Delete in batches until nothing expired is found; returns how many items there were."""
        if days is None:
            return 0
        before, deleted = self._clock() - timedelta(days=days), 0
        while count := await expire(before, BATCH):
            deleted += count
            await asyncio.sleep(PAUSE)
        return deleted
