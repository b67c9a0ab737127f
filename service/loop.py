"""Run a step again and again, through every outage of the bus."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from service.errors import BusError, StoreError
from service.health import Pulse

log = structlog.get_logger()

#: Seconds until the first retry, and at most between two.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0


async def keep_on(
    name: str,
    step: Callable[[], Awaitable[object]],
    stop: asyncio.Event | None = None,
    pulse: Pulse | None = None,
) -> None:
    """Repeat a step until ``stop`` is set; while the bus or a store fails, with pauses between.

    ``pulse`` learns of failures, and when they are over.
    """
    pause = FIRST_PAUSE
    told: set[str] = set()
    while stop is None or not stop.is_set():
        try:
            await step()
        except (BusError, StoreError) as error:
            if error.detail not in told:  # an outage is told of once, not with every attempt
                log.warning("loop.interrupted", loop=name, error=error.detail)
            told.add(error.detail)
            if pulse:
                pulse.failed(name)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            if told:
                log.info("loop.resumed", loop=name)
                if pulse:
                    pulse.resumed(name)
            told.clear()
            pause = FIRST_PAUSE
        heed_cancellation()
        await asyncio.sleep(0)  # a step that never waits must not keep others from running


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


async def every(seconds: float, name: str, step: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step with so many seconds between, until cancelled."""

    async def spaced() -> None:
        await asyncio.sleep(seconds)
        await step()

    await keep_on(name, spaced)
