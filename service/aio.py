"""Helpers for asyncio programs: running them, time limits, batches."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from importlib.util import find_spec
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Characters of text from which on work is done in a thread, so that the event loop stays free:
#: about 10 ms of CPU where nothing has been counted before.
LARGE_TEXT: Final = 50_000
#: New objects from which on they are looked through, where Python's default is 700, and how many
#: such looks lead to one through older ones.
GENERATIONS: Final = (20_000, 20, 50)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end, as `asyncio.run` does; on uvloop where that is installed.

    uvloop comes with the extra ``fast``; there is none for Windows.
    """
    if find_spec("uvloop") is None:
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - it may not be installed

    result: T = uvloop.run(main)
    return result


def settle_memory() -> None:
    """Spare a process that is ready, and will run for long, most of its garbage collections.

    What has been loaded, some hundred thousand objects, stays anyway, and is never looked through
    again. Nearly all that a request leaves behind goes at once, as nothing refers to it; what is
    left for collections are a few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)


async def batches(items: AsyncIterator[T], size: int) -> AsyncGenerator[list[T], None]:
    """Yield items in lists of so many, and what is left in a last one."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def heed_cancellation() -> None:
    """Raise the cancellation that a library may have swallowed on its way to a loop.

    Up to Python 3.11, `asyncio.wait_for` loses one that arrives as the awaited call ends.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class time_limit:  # noqa: N801 - read as a phrase
    """Cancel what a task does in the context when so many seconds are over.

    It is `asyncio.timeout` for limits that are seldom reached, in a third of its time. Raises
    `TimeoutError` in place of its own cancellation, and lets others through.
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
        # where somebody else has cancelled the task as well, that goes on
        if self._over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError
