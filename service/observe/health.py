"""How a worker is: whether it makes progress, and whether it can do its work now."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from service.errors import ContextBuilderError

log = structlog.get_logger()

#: Seconds that a check may take, and for which its outcome is used again.
CHECK_SECONDS: Final = 1.0
#: Leases without a beat after which a worker counts as stuck.
LEASES: Final = 6
#: Failures in a row after which a loop counts as held up: more than one bad answer costs the
#: sender before it is given up.
FAILURES: Final = 4

#: Raises `ContextBuilderError` where something can't be used.
Probe = Callable[[], Awaitable[object]]
#: Seconds on a clock that never goes back.
Clock = Callable[[], float]


def patience(lease_seconds: float, socket_timeout: float) -> float:
    """Return the seconds without a beat after which a worker counts as stuck.

    While the bus is away one round of the loop waits for several commands to time out: that is no
    reason for a restart, so a short lease does not count.
    """
    return LEASES * max(lease_seconds, socket_timeout)


class Pulse:
    """When the loop that reads requests last went round, and what keeps it from its work."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._stop: asyncio.Event | None = None
        #: Loops that fail, each with how often in a row.
        self._failing: Counter[str] = Counter()

    def begin(self, stop: asyncio.Event) -> None:
        """Count as taking requests from now on, until ``stop`` is set."""
        self._stop = stop
        self.beat()

    def beat(self) -> None:
        """Note that the loop has gone round."""
        self._last = self._clock()

    def failed(self, loop: str) -> None:
        """Note that bus or store kept a loop from its work."""
        self._failing[loop] += 1

    def resumed(self, loop: str) -> None:
        """Note that a loop does its work again."""
        del self._failing[loop]

    @property
    def silent_seconds(self) -> float:
        """Return how long ago the last beat was."""
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

    def alive(self, patience: float) -> bool:
        """Tell whether the loop makes progress; one that was told to stop needs none."""
        return self.state == "stopping" or self.silent_seconds <= patience


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found, in words that name no host and no user."""

    name: str
    ok: bool
    detail: str


class Readiness:
    """Checks whether a worker can do its work; asked often, it checks once a second."""

    def __init__(self, pulse: Pulse, probes: Mapping[str, Probe], clock: Clock = monotonic) -> None:
        self._pulse = pulse
        self._probes = probes
        self._clock = clock
        self._found: list[Check] = []
        self._until = clock()
        self._checking = asyncio.Lock()

    async def checks(self) -> list[Check]:
        """Return all checks, the worker's own state first, which is never an old one."""
        async with self._checking:
            if self._clock() >= self._until:
                await self._check_all()
                self._until = self._clock() + CHECK_SECONDS
        state = self._pulse.state
        return [Check("worker", state == "taking requests", state), *self._found]

    async def _check_all(self) -> None:
        failed = {check.name for check in self._found if not check.ok}
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(_check(name, probe)) for name, probe in self._probes.items()]
        self._found = [task.result() for task in asked]
        for check in self._found:
            # once an outage, however often somebody asks
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
