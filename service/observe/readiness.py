"""Readiness of a worker: checks of what it depends on."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from service.errors import ContextBuilderError

log = structlog.get_logger(__name__)

#: Seconds until a check times out, and seconds that its result is cached.
CHECK_SECONDS: Final = 1.0
#: A worker without a beat for this many leases is stuck.
LEASES: Final = 6

#: Raises `ContextBuilderError` if a dependency can't be used.
Probe = Callable[[], Awaitable[object]]


def stuck_after(lease_seconds: float, socket_timeout: float) -> float:
    """Return the seconds without a beat after which a worker is stuck.

    During an outage of the bus one iteration waits for several timeouts. This must not restart the
    worker, so a lease shorter than the timeout doesn't apply.
    """
    return LEASES * max(lease_seconds, socket_timeout)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check, without names of hosts and users."""

    name: str
    ok: bool
    detail: str


class Readiness:
    """Checks whether a worker is ready; results are cached for `CHECK_SECONDS`."""

    def __init__(
        self,
        state: Callable[[], str],
        probes: Mapping[str, Probe],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Check ``probes``; ``state`` returns the state of the worker."""
        self._state = state
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
        state = self._state()
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
