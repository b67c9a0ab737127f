"""Repeat a step until told to stop, and back off while the bus or a store fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from service.aio import heed_cancellation
from service.errors import BusError, StoreError
from service.observe.health import Pulse

log = structlog.get_logger(__name__)

#: Seconds before the first retry, and the limit of the doubled delays after it.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
#: Limit of the distinct errors that one outage logs.
MAX_ERRORS: Final = 20


async def keep_on(
    name: str,
    step: Callable[[], Awaitable[object]],
    stop: asyncio.Event | None = None,
    pulse: Pulse | None = None,
) -> None:
    """Repeat a step until ``stop`` is set; back off while the bus or a store fails.

    ``pulse`` is notified of each failure and of the recovery.
    """
    pause = FIRST_PAUSE
    logged: set[str] = set()
    while stop is None or not stop.is_set():
        try:
            await step()
        except (BusError, StoreError) as error:
            if error.detail not in logged and len(logged) < MAX_ERRORS:
                log.warning("loop.interrupted", loop=name, error=error.detail)
                logged.add(error.detail)
            if pulse:
                pulse.failed(name)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            if logged:
                log.info("loop.resumed", loop=name)
                if pulse:
                    pulse.resumed(name)
            logged.clear()
            pause = FIRST_PAUSE
        heed_cancellation()
        await asyncio.sleep(0)  # a step that never waits must not starve the others


async def every(seconds: float, name: str, step: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step at an interval, until cancelled."""

    async def delayed_step() -> None:
        await asyncio.sleep(seconds)
        await step()

    await keep_on(name, delayed_step)
