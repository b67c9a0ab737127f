"""Deletes history that is older than the settings keep it, a little at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from service.config.settings import Settings
from service.ports.stores import HistoryStore

log = structlog.get_logger()

#: Seconds between two looks for what has grown too old.
INTERVAL: Final = 60.0
#: Rows that are deleted in one transaction: some milliseconds of a database.
PORTION: Final = 200
#: Seconds between two transactions, so that they take a small part of the store's time.
PAUSE: Final = 0.05


class Retention:
    """Deletes rows and archived copies; several workers at a time do no harm."""

    def __init__(
        self,
        history: HistoryStore,
        settings: Settings,
        clock: Callable[[], datetime],
        *,
        portion: int = PORTION,
    ) -> None:
        self._history = history
        self._rows = _days(settings.store.retention_days)
        self._copies = _days(settings.events.retention_days)
        self._clock = clock
        self._portion = portion

    async def enforce(self) -> None:
        """Delete all that is too old by now; raises `StoreError`."""
        rows = await self._all(self._history.expire, self._rows)
        copies = await self._all(self._history.expire_archive, self._copies)
        if rows or copies:
            log.info("retention.deleted", rows=rows, copies=copies)

    async def _all(
        self, expire: Callable[[datetime, int], Awaitable[int]], kept: timedelta | None
    ) -> int:
        """Delete portion by portion, until nothing is found; returns how much there was."""
        if kept is None:
            return 0
        before, deleted = self._clock() - kept, 0
        while some := await expire(before, self._portion):
            deleted += some
            await asyncio.sleep(PAUSE)
        return deleted


def _days(days: float | None) -> timedelta | None:
    return None if days is None else timedelta(days=days)
