"""Work for later, when answers are out: a bounded queue, and the task that works it off."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from service.build.report import Built

T = TypeVar("T")

#: Builds that wait for one kind of work; they hold all that was read, so there is a bound.
WAITING: Final = 256
#: Seconds for what still waits when a process ends.
DRAIN: Final = 2.0
#: Bytes that wait at most in one backlog, by `held_bytes`; an item that is larger waits alone.
MOST_BYTES: Final = 32 * 1_048_576
#: Bytes that a build takes, and each row that it read, besides the texts: measured with
#: tracemalloc on builds that read 20 to 2,000 rows, which came within a tenth of it.
BUILD_BYTES: Final = 10_000
ROW_BYTES: Final = 1_100


class Losses:
    """Builds that went without some work: told of at the start of an outage, and at its end.

    ``begun`` is told of the first, ``over`` of how many there were. A reason that was told
    is told again with the next outage.
    """

    def __init__(
        self, begun: Callable[[Built, str], object], over: Callable[[int], object]
    ) -> None:
        self._begun = begun
        self._over = over
        self._told: set[str] = set()
        self._count = 0

    def add(self, builds: Sequence[Built], reason: str) -> None:
        """Count builds, of which there is at least one."""
        self._count += len(builds)
        if reason not in self._told:
            self._told.add(reason)
            self._begun(builds[0], reason)

    def end(self) -> None:
        """Note that the work is done again, or done for good."""
        if self._count:
            self._over(self._count)
        self._told.clear()
        self._count = 0


class AfterAnswer(Protocol):
    """Work on builds in the background, once their answers are out."""

    def keep(self, built: Built | None) -> None:
        """Queue a build, if there is one; neither waits nor raises."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...

    async def drain(self) -> None:
        """Wait for `run` to finish what is queued, for a limited time."""
        ...


class Afterwards:
    """Work on builds that is done when their answers are out."""

    def __init__(
        self,
        work: Callable[[Sequence[Built]], Awaitable[object]],
        wanted: Callable[[Built], bool],
        losses: Losses,
        *,
        batch: int,
    ) -> None:
        self._backlog = Backlog(work, size=WAITING, batch=batch, weigh=held_bytes)
        self._wanted = wanted
        self._losses = losses

    def keep(self, built: Built | None) -> None:
        """Take a build, if there is one that is to be worked on; neither waits nor raises."""
        if built is None or not self._wanted(built):
            return
        if not self._backlog.put(built):
            self._losses.add([built], "too many others wait already")

    async def run(self) -> None:
        """Work until cancelled."""
        await self._backlog.run()

    async def drain(self) -> None:
        """Wait for `run` to finish what it has, but not for long."""
        await self._backlog.drain()
        self._losses.end()

    def done(self) -> None:
        """Note that some work was done: once none waits, what was lost is told."""
        if self._backlog.empty:
            self._losses.end()


class Backlog(Generic[T]):
    """Items that wait for ``work``, in their order; ``work`` must not raise.

    It gets those that have come together since the last time, at most ``batch`` of them. At most
    ``size`` items wait, and `MOST_BYTES` as ``weigh`` tells them, so that a few long histories
    don't take what hundreds of short ones may. It is done as often at a time as `run` runs.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[object]],
        *,
        size: int,
        batch: int,
        weigh: Callable[[T], int] = lambda _: 1,
    ) -> None:
        self._work = work
        self._batch = batch
        self._weigh = weigh
        self._bytes = 0
        self._waiting: asyncio.Queue[tuple[T, int]] = asyncio.Queue(size)

    def put(self, item: T) -> bool:
        """Add an item; returns False where there is no room for it."""
        weight = self._weigh(item)
        if self._bytes and self._bytes + weight > MOST_BYTES:
            return False
        try:
            self._waiting.put_nowait((item, weight))
        except asyncio.QueueFull:
            return False
        self._bytes += weight
        return True

    @property
    def empty(self) -> bool:
        """Tell whether none waits; some may be in work."""
        return self._waiting.empty()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            taken = [await self._waiting.get()]
            while len(taken) < self._batch and not self._waiting.empty():
                taken.append(self._waiting.get_nowait())
            try:
                await self._work([item for item, _ in taken])
            finally:
                self._bytes -= sum(weight for _, weight in taken)
                for _ in taken:
                    self._waiting.task_done()
                del taken  # else the last ones are held until the next come

    async def drain(self) -> None:
        """Wait for `run` to work off what there is, but no longer than `DRAIN`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self._waiting.join()


def held_bytes(built: Built) -> int:
    """Return about how many bytes a build holds: its rows and their texts, and its messages."""
    gathered = built.gathered
    rows = (*gathered.history.messages, *gathered.history.current, *gathered.run)
    texts = sum(sys.getsizeof(row.content) for row in rows)
    messages = sum(sys.getsizeof(message.get("content")) for message in built.content.messages)
    return BUILD_BYTES + ROW_BYTES * len(rows) + texts + messages
