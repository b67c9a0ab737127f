"""Helpers for asyncio programs: running them, time limits, batches."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
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


def raise_if_cancelled() -> None:
    """Raise `CancelledError` if the task was cancelled; loops call it between iterations.

    Libraries may swallow a cancellation: up to Python 3.11, `asyncio.wait_for` loses one that
    arrives as the awaited call ends.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class time_limit:  # noqa: N801 - read as a phrase
    """Cancel the task's work in the context after ``seconds``; raises `TimeoutError` then.

    Does what `asyncio.timeout` does, in a third of its time, for limits that are seldom reached.
    Cancellations by others pass through.
    """

    __slots__ = ("_before", "_over", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be cancelled")
        self._task, self._before = task, task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._cancel)

    def _cancel(self) -> None:
        self._over = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._timer.cancel()
        # a cancellation by another party takes precedence
        if self._over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError
