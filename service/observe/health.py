"""Health of a worker: whether it makes progress, and whether it is ready for requests."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from service.errors import ContextBuilderError

log = structlog.get_logger(__name__)

#: The timeout of a check, and the time for which its result is cached, in seconds.
CHECK_SECONDS: Final = 1.0
#: A worker without a beat for this many leases is stuck.
LEASES: Final = 6
#: A loop with this many failures in a row is held up; one more than the sender's attempts.
FAILURES: Final = 4

#: Raises `ContextBuilderError` if a dependency can't be used.
Probe = Callable[[], Awaitable[object]]
#: A monotonic clock, in seconds.
Clock = Callable[[], float]


def stuck_after(lease_seconds: float, socket_timeout: float) -> float:
    """Return the seconds without a beat after which a worker is stuck.

    During an outage of the bus one iteration waits for several timeouts. This must not restart the
    worker, so a lease shorter than the timeout doesn't apply.
    """
    return LEASES * max(lease_seconds, socket_timeout)


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


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check, without names of hosts and users."""

    name: str
    ok: bool
    detail: str


class Readiness:
    """Checks whether a worker is ready; results are cached for `CHECK_SECONDS`."""

    def __init__(self, pulse: Pulse, probes: Mapping[str, Probe], clock: Clock = monotonic) -> None:
        self._pulse = pulse
        self._probes = probes
        self._clock = clock
        self._results: list[Check] = []
        self._until = clock()
        self._checking = asyncio.Lock()

    async def checks(self) -> list[Check]:
        """Return all results; the first is the state of the worker, which is never cached."""
        async with self._checking:
            if self._clock() >= self._until:
                await self._check_all()
                self._until = self._clock() + CHECK_SECONDS
        state = self._pulse.state
        return [Check("worker", state == "taking requests", state), *self._results]

    async def _check_all(self) -> None:
        failed = {check.name for check in self._results if not check.ok}
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_check(n, probe)) for n, probe in self._probes.items()]
        self._results = [task.result() for task in running]
        for check in self._results:
            # once per outage
            if not check.ok and check.name not in failed:
                log.warning("health.check_failed", check=check.name, reason=check.detail)


async def _check(name: str, probe: Probe) -> Check:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await probe()
    except TimeoutError:
        return Check(name, ok=False, detail=f"no answer within {CHECK_SECONDS:g} s")
    except ContextBuilderError:
        return Check(name, ok=False, detail="cannot be used")
    return Check(name, ok=True, detail="answers")
