"""The newest builds of a worker, one line each, for the list and the live feed."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final

from service.audit.reports import BuildReport
from service.http.views import BuildSummary, summary_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentBuild:
    """A build that is listed."""

    #: Increases with every build of this process.
    number: int
    owner_key: str
    summary: BuildSummary
    #: When it expires, on a monotonic clock.
    until: float


class RecentBuilds:
    """Lists builds for as long as their reports are kept; new ones evict the oldest."""

    def __init__(
        self, *, size: int, seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._builds: OrderedDict[str, RecentBuild] = OrderedDict()
        self._last = 0
        self._changed = asyncio.Event()
        self.closed = False
        #: Distinguishes the numbers of this process from those of another.
        self.era: Final = secrets.token_hex(4)

    @property
    def last(self) -> int:
        """Return the number of the newest build; 0 before the first."""
        return self._last

    def add(self, report: BuildReport) -> None:
        """Add a build, whose report is on the bus."""
        self.drop(report.build_id)
        self._last += 1
        self._builds[report.build_id] = RecentBuild(
            number=self._last,
            owner_key=report.request.owner_key,
            summary=summary_of(report),
            until=self._clock() + self._seconds,
        )
        self._evict()
        self._wake()

    def drop(self, build_id: str) -> None:
        """Remove a build, if it is listed."""
        self._builds.pop(build_id, None)

    def of(self, owner_key: str, *, before: int | None = None) -> Iterator[RecentBuild]:
        """Yield the builds of an owner, newest first; with ``before``, those of lower numbers."""
        self._evict()
        for build in [*reversed(self._builds.values())]:
            if build.owner_key == owner_key and (before is None or build.number < before):
                yield build

    def since(self, number: int, owner_key: str) -> list[RecentBuild]:
        """Return the builds of an owner with higher numbers, oldest first."""
        self._evict()
        return [
            build
            for build in self._builds.values()
            if build.number > number and build.owner_key == owner_key
        ]

    def has_all_since(self, number: int) -> bool:
        """Return whether every build with a higher number is still listed."""
        self._evict()
        oldest = next(iter(self._builds.values()), None)
        return number >= self._last or (oldest is not None and oldest.number <= number + 1)

    async def wait(self, seconds: float) -> None:
        """Wait for the next build or for `close`, at most ``seconds``."""
        if self.closed:
            return
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Remove all builds, and release all who wait."""
        self.closed = True
        self._builds.clear()
        self._wake()

    def _evict(self) -> None:
        now = self._clock()
        while self._builds:
            build_id, oldest = next(iter(self._builds.items()))
            if oldest.until > now and len(self._builds) <= self._size:
                return
            self.drop(build_id)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
