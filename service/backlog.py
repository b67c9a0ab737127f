"""Work for later, when answers are out: a bounded queue, and the task that works it off."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from service.provenance import Built

T = TypeVar("T")

#: Builds that wait for one kind of work; they hold all that was read, so there is a bound.
WAITING: Final = 256
#: Seconds for what still waits when a process ends.
DRAIN: Final = 2.0


class Afterwards(Protocol):
    """Work on builds that is done when their answers are out."""

    def keep(self, built: Built | None) -> None:
        """Take a build, if there is one; neither waits nor raises."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...

    async def drain(self) -> None:
        """Wait for `run` to finish what it has, but not for long."""
        ...


class Backlog(Generic[T]):
    """Items that wait for ``work``, in their order; ``work`` must not raise.

    It gets those that have come together since the last time, at most ``batch`` of them. It is
    done as often at a time as `run` runs.
    """

    def __init__(
        self, work: Callable[[Sequence[T]], Awaitable[object]], *, size: int, batch: int
    ) -> None:
        self._work = work
        self._batch = batch
        self._waiting: asyncio.Queue[T] = asyncio.Queue(size)

    def put(self, item: T) -> bool:
        """Add an item; returns False where there is no room for it."""
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            return False
        return True

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            items = [await self._waiting.get()]
            while len(items) < self._batch and not self._waiting.empty():
                items.append(self._waiting.get_nowait())
            try:
                await self._work(items)
            finally:
                for _ in items:
                    self._waiting.task_done()

    async def drain(self) -> None:
        """Wait for `run` to work off what there is, but no longer than `DRAIN`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self._waiting.join()
