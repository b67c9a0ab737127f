"""Repeat a step until told to stop, with pauses while the bus or a store fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from service.aio import heed_cancellation
from service.errors import BusError, StoreError
from service.observe.health import Pulse

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


async def every(seconds: float, name: str, step: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step with so many seconds between, until cancelled."""

    async def spaced() -> None:
        await asyncio.sleep(seconds)
        await step()

    await keep_on(name, spaced)
