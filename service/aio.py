"""Helpers for asyncio programs: running them, cancellation, batches, limits of memory."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Characters of text above which work is done in a thread, so that the event loop stays free: about
#: 10 ms of CPU if none of it has been counted before.
LARGE_TEXT: Final = 50_000
#: Thresholds of the garbage collector: new objects that start a collection (Python's default is
#: 700), and collections of a generation that start one of the next older.
GENERATIONS: Final = (20_000, 20, 50)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program as `asyncio.run` does, on uvloop if it is installed.

    uvloop comes with the extra ``fast``; it doesn't support Windows.
    """
    if find_spec("uvloop") is None:
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - it may not be installed

    result: T = uvloop.run(main)
    return result


def raise_if_cancelled() -> None:
    """Raise `CancelledError` if the task was cancelled; loops call it between iterations.

    Libraries may swallow a cancellation: up to Python 3.11, `asyncio.wait_for` loses one that
    arrives as the awaited call ends.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def reduce_garbage_collection() -> None:
    """Make garbage collections rare in a long-running process that has finished loading.

    The objects loaded so far, some hundred thousand, are kept anyway, so they are exempted from
    collections. Reference counting frees nearly everything that a request allocates; only a few
    cycles remain for the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)


async def batches(items: AsyncIterator[T], size: int) -> AsyncGenerator[list[T], None]:
    """Yield items in lists of ``size``; the last one may be shorter."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class Admission:
    """Admits large payloads in the order of their arrival, up to a number of bytes at a time.

    One that is larger than the limit is admitted alone; small ones are always admitted.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        #: The number of payloads that wait.
        self.waiting = 0

    @asynccontextmanager
    async def admit(self, size: int) -> AsyncIterator[None]:
        """Wait until a payload of ``size`` bytes is admitted; it is while the context lasts."""
        if size >= LARGE_TEXT:
            await self._wait_for(size)
        try:
            yield
        finally:
            if size >= LARGE_TEXT:
                self._bytes -= size
                self._changed.set()

    async def _wait_for(self, size: int) -> None:
        self.waiting += 1
        try:
            async with self._turn:
                while self._bytes and self._bytes + size > self._max_bytes:
                    self._changed.clear()
                    await self._changed.wait()
                self._bytes += size
        finally:
            self.waiting -= 1
