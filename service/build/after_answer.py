"""Work on builds after their answers: the protocol, and bounded queues."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from service.build.account import Built

T = TypeVar("T")

#: Limit of the builds in one queue; each holds all that it read.
MAX_BUILDS: Final = 256
#: Seconds that a queue gets to finish when the process ends.
DRAIN_SECONDS: Final = 2.0
#: Limit of the bytes in one queue, by `build_bytes`; a larger item is queued alone.
MAX_BYTES: Final = 32 * 1_048_576
#: Bytes of a build, and of each row that it read, without the texts. Measured with tracemalloc on
#: builds that read 20 to 2,000 rows; all were within 10 %.
BUILD_BYTES: Final = 10_000
ROW_BYTES: Final = 1_100


class AfterAnswer(Protocol):
    """Work on builds after their answers have been sent."""

    def keep(self, built: Built) -> None:
        """Queue a build if there is work to do for it; neither waits nor raises."""

    async def run(self) -> None:
        """Work until cancelled."""

    async def drain(self) -> None:
        """Wait for `run` to finish what is queued, for a bounded time."""


class Backlog(Generic[T]):
    """A bounded queue of items for ``work``, which must not raise.

    ``work`` gets the items that have accumulated, at most ``batch`` of them. The queue holds at
    most ``size`` items and `MAX_BYTES` by ``size_of``, so that a few long histories don't take
    the room of hundreds of short ones. Each concurrent call of `run` adds a consumer.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[object]],
        *,
        size: int,
        batch: int,
        size_of: Callable[[T], int] = lambda _: 1,
    ) -> None:
        self._work = work
        self._batch = batch
        self._size_of = size_of
        self._bytes = 0
        self._waiting: asyncio.Queue[tuple[T, int]] = asyncio.Queue(size)

    def put(self, item: T) -> bool:
        """Add an item; return False if there is no room."""
        size = self._size_of(item)
        if self._bytes and self._bytes + size > MAX_BYTES:
            return False
        try:
            self._waiting.put_nowait((item, size))
        except asyncio.QueueFull:
            return False
        self._bytes += size
        return True

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            taken = [await self._waiting.get()]
            while len(taken) < self._batch and not self._waiting.empty():
                taken.append(self._waiting.get_nowait())
            try:
                await self._work([item for item, _ in taken])
            finally:
                self._bytes -= sum(size for _, size in taken)
                for _ in taken:
                    self._waiting.task_done()
                del taken  # or the last items stay in memory until the next ones arrive

    async def drain(self) -> None:
        """Wait for `run` to finish all items, for at most `DRAIN_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._waiting.join()


class BuildQueue(Backlog[Built]):
    """Work on builds from a bounded queue, an `AfterAnswer`; reports outages of the work.

    Of each outage it reports the start, with a build that was lost and the reason, and the end,
    with the number of builds that were lost. Each reason is reported once per outage.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Built]], Awaitable[object]],
        is_wanted: Callable[[Built], bool],
        on_loss: Callable[[Built, str], object],
        on_recovery: Callable[[int], object],
        *,
        batch: int,
    ) -> None:
        """Call ``work`` with up to ``batch`` builds at a time; those not wanted are skipped."""
        super().__init__(work, size=MAX_BUILDS, batch=batch, size_of=build_bytes)
        self._is_wanted = is_wanted
        self._on_loss = on_loss
        self._on_recovery = on_recovery
        self._reasons: set[str] = set()
        self._lost = 0

    def keep(self, built: Built) -> None:
        """Queue a build if it is wanted; one that has no room is counted as lost."""
        if self._is_wanted(built) and not self.put(built):
            self.lose([built], "the queue is full")

    def lose(self, builds: Sequence[Built], reason: str) -> None:
        """Count one or more builds as lost."""
        self._lost += len(builds)
        if reason not in self._reasons:
            self._reasons.add(reason)
            self._on_loss(builds[0], reason)

    def succeeded(self) -> None:
        """Record that work succeeded; an outage ends when the queue is empty."""
        if self._waiting.empty():
            self._end_outage()

    async def drain(self) -> None:
        """Wait for `run` to finish what is queued, for a bounded time."""
        await super().drain()
        self._end_outage()

    def _end_outage(self) -> None:
        if self._lost:
            self._on_recovery(self._lost)
        self._reasons.clear()
        self._lost = 0


def build_bytes(built: Built) -> int:
    """Estimate the bytes that a build holds: its rows, their texts and its messages."""
    gathered = built.gathered
    rows = (*gathered.history.messages, *gathered.history.current, *gathered.run)
    texts = sum(sys.getsizeof(row.content) for row in rows)
    messages = sum(sys.getsizeof(message.get("content")) for message in built.content.messages)
    return BUILD_BYTES + ROW_BYTES * len(rows) + texts + messages
