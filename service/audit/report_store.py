"""Stores the reports of builds on the bus after their answers, and finds them there."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import structlog

from service.audit.reports import BuildReport, changed_settings, make_report, unpack_report
from service.build.account import Built
from service.build.after_answer import BuildQueue, build_bytes
from service.config.settings import Settings
from service.errors import BusError
from service.ports.bus import ReportStore

log = structlog.get_logger(__name__)

#: Reports that are stored in one round trip at most.
BATCH: Final = 32
#: Reports after which other work gets its turn. Each takes some 0.2 ms; with fewer, reports are
#: lost under full load, as several builds are made in each turn of the loop.
TURN: Final = 8
#: Bytes held by a build whose report is written in a thread: some milliseconds of work.
_LARGE_BUILD: Final = 500_000


async def find_report(store: ReportStore, build_id: str) -> BuildReport | None:
    """Return the report of a build, or None if there is none that this version can read.

    Raises `BusError`.
    """
    packed = await store.get(build_id)
    if packed is None:
        return None
    try:
        return unpack_report(packed)
    except ValueError as error:
        log.warning("report.unreadable", build_id=build_id, reason=type(error).__name__)
        return None


class BuildReports:
    """Stores the reports of builds in the background; failures are only logged."""

    def __init__(
        self,
        store: ReportStore,
        settings: Settings,
        clock: Callable[[], datetime],
        stored: Callable[[BuildReport], object] | None = None,
    ) -> None:
        """Keep reports in a store; ``stored`` is called with each report once it is there."""
        self._store = store
        self._settings = settings.reports
        self._content = settings.http.content
        self._changed_settings = changed_settings(settings)
        self._clock = clock
        self._stored = stored
        is_enabled = self._settings.ttl_seconds > 0
        self.queue = BuildQueue(
            self.store, lambda _: is_enabled, _log_loss, _log_recovery, batch=BATCH
        )

    async def store(self, builds: Sequence[Built]) -> None:
        """Store the reports of builds in one round trip; one that can't be written is left out."""
        written = []
        for index, built in enumerate(builds, start=1):
            if pair := await self._write(built):
                written.append(pair)
            if not index % TURN:
                await asyncio.sleep(0)
        try:
            packed = {report.build_id: data for report, data in written}
            await self._store.put(packed, self._settings.ttl_seconds)
        except BusError as error:
            self.queue.lose(builds, str(error))
            return
        self.queue.succeeded()
        if self._stored:
            for report, _ in written:
                self._stored(report)

    async def _write(self, built: Built) -> tuple[BuildReport, bytes] | None:
        """Return a report and its stored form; None if it can't be written, which is logged."""
        try:
            if build_bytes(built) < _LARGE_BUILD:
                report, packed = self._pack(built)
            else:
                report, packed = await asyncio.to_thread(self._pack, built)
        except (ValueError, TypeError) as error:
            _log_loss(built, str(error))
            return None
        if len(packed) <= self._settings.max_bytes:
            return report, packed
        _log_loss(built, f"the report has {len(packed)} bytes")
        return None

    def _pack(self, built: Built) -> tuple[BuildReport, bytes]:
        """Return a report and its stored form; one that is too large goes without its texts."""
        at, settings = self._clock(), self._changed_settings
        report = make_report(built, at=at, content=self._content, settings=settings)
        packed = report.packed()
        if self._content == "full" and len(packed) > self._settings.max_bytes:
            report = make_report(built, at=at, content="redacted", settings=settings)
            packed = report.packed()
        return report, packed


def _log_loss(built: Built, reason: str) -> None:
    log.warning("report.lost", build_id=built.content.build_id, reason=reason)


def _log_recovery(lost: int) -> None:
    log.info("report.resumed", lost=lost)
