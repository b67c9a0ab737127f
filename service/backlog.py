"""Work for later, when answers are out: a bounded queue, and the task that works it off."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from service.provenance import Built

T = TypeVar("T")


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
    """Items that wait for ``work``, one at a time, in their order; ``work`` must not raise."""

    def __init__(self, work: Callable[[T], Awaitable[object]], *, size: int) -> None:
        self._work = work
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
            item = await self._waiting.get()
            try:
                await self._work(item)
            finally:
                self._waiting.task_done()

    async def drain(self, seconds: float) -> None:
        """Wait for `run` to work off what there is, but no longer than so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waiting.join()
