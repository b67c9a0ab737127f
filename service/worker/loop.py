"""Run steps until stopped, with back-off during outages, and record their progress."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import structlog

from service.aio import raise_if_cancelled
from service.errors import BusError, StoreError

#: A loop with this many failures in a row is held up; one more than the sender's attempts.
FAILURES: Final = 4
#: A monotonic clock, in seconds.
Clock = Callable[[], float]


class Pulse:
    """The progress of the loop that reads requests, and its failures."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._stop: asyncio.Event | None = None
        #: Consecutive failures by loop.
        self._failing: Counter[str] = Counter()

    def begin(self, stop: asyncio.Event) -> None:
        """Take requests from now on, until ``stop`` is set."""
        self._stop = stop
        self.beat()

    def beat(self) -> None:
        """Record an iteration of the loop."""
        self._last = self._clock()

    def failed(self, loop: str) -> None:
        """Record a failure of the bus or a store in a loop."""
        self._failing[loop] += 1

    def resumed(self, loop: str) -> None:
        """Record the recovery of a loop."""
        del self._failing[loop]

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the last beat."""
        return self._clock() - self._last

    @property
    def state(self) -> str:
        """Return ``starting``, ``taking requests``, ``held up`` or ``stopping``."""
        if self._stop is None:
            return "starting"
        if self._stop.is_set():
            return "stopping"
        held_up = any(times >= FAILURES for times in self._failing.values())
        return "held up" if held_up else "taking requests"

    def alive(self, stuck_after: float) -> bool:
        """Return whether the loop makes progress, or is stopping."""
        return self.state == "stopping" or self.silent_seconds <= stuck_after


log = structlog.get_logger(__name__)

#: Seconds before the first retry, and the limit of the doubled delays after it.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
#: Limit of the distinct errors that one outage logs.
MAX_ERRORS: Final = 20


async def repeat_with_backoff(
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
        raise_if_cancelled()
        await asyncio.sleep(0)  # a step that never waits must not starve the others


async def every(seconds: float, name: str, step: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step at an interval, until cancelled."""

    async def delayed_step() -> None:
        await asyncio.sleep(seconds)
        await step()

    await repeat_with_backoff(name, delayed_step)
