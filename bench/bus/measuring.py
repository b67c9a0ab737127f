"""The rounds of the benchmark, which measure all contenders alternately."""

import asyncio
import json
import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from bench.bus.callers import lean_callers, usual_callers
from bench.bus.figures import FLEETS, MANY, ONE, Round, figures
from bench.bus.fleets import Fleet, Measured, echo, workers
from bench.bus.load import Callers, Command
from bench.processes import cpu_seconds, usage
from service.adapters.embedded.binaries import find_server
from service.adapters.embedded.server import embedded_server

#: Seconds that a worker is left alone before its idle CPU is read.
QUIET: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    rounds: int
    #: Seconds of each window.
    seconds: float
    #: Seconds for which an idle worker is watched.
    idle_seconds: float
    #: Requests before the first look at a worker's memory, when what it keeps for each owner is
    #: there; those between the two looks; and the seconds that both may take in all.
    settled: int
    requests: int
    memory_seconds: float


FULL: Final = Effort(
    rounds=3, seconds=1.8, idle_seconds=15.0, settled=2_000, requests=20_000, memory_seconds=45.0
)
QUICK: Final = Effort(
    rounds=3, seconds=0.3, idle_seconds=3.0, settled=500, requests=1_000, memory_seconds=5.0
)


async def measured(effort: Effort) -> dict[str, Any]:
    """Measure everything and return the figures by their keys."""
    binary = find_server()
    if binary is None:
        raise SystemExit("no server to start: make bench-env")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(embedded_server(binary))
        starting = (workers(stack, url, "constant", number) for number in FLEETS)
        *alone, builds = await asyncio.gather(*starting, workers(stack, url, "build", 1))
        fleets = dict(zip(FLEETS, alone, strict=True))
        small, large = _said(fleets[1])["response_bytes"], _said(builds)["response_bytes"]
        raw, raw_large = await echo(stack, url, small), await echo(stack, url, large)
        usual = await stack.enter_async_context(usual_callers(url))
        lean, shared = await lean_callers(url, MANY), await lean_callers(url, 1)
        bench = _Bench(usual, lean, shared, effort.seconds)
        windows = {
            **bench.usually(raw, fleets[1]),
            **bench.alone(raw, fleets),
            **bench.builds(raw_large, builds),
        }
        rounds: list[Round] = [
            {name: await window() for name, window in windows.items()} for _ in range(effort.rounds)
        ]
        return {
            **figures(rounds, _said(builds)["build_us"]),
            "idle_cpu_percent": await _idle(builds, effort.idle_seconds),
            "memory": await _memory(builds, bench.lean, effort),
            "response_bytes": {"bus_alone": small, "builds": large},
            "rounds": effort.rounds,
            "machine": _machine(),
        }


@dataclass(frozen=True, slots=True)
class _Bench:
    """The windows of a round by name, in an order that keeps what is compared side by side."""

    #: Callers with redis-py.
    usual: Callers
    #: Lean callers with connections of their own, and lean callers that share one.
    lean: Callers
    shared: Callers
    seconds: float

    def usually(self, raw: Fleet, one: Fleet) -> dict[str, Callable[[], Awaitable[Measured]]]:
        """Return the windows of an echo and a worker that builds nothing, with usual callers."""
        return {
            "raw_usual": partial(raw.measure, self.usual, raw.channel, self.seconds, MANY),
            "streams_usual": partial(one.measure, self.usual, one.stream, self.seconds, MANY),
            "pubsub_usual": partial(one.measure, self.usual, one.channel, self.seconds, MANY),
        }

    def alone(
        self, raw: Fleet, fleets: Mapping[int, Fleet]
    ) -> dict[str, Callable[[], Awaitable[Measured]]]:
        """Return the windows of workers that build nothing."""
        one = fleets[1]
        return {
            "raw": partial(self._window, raw, raw.channel),
            "streams": partial(self._window, one, one.stream),
            "pubsub": partial(self._window, one, one.channel),
            **{
                f"workers_{number}": partial(self._window, fleet, fleet.stream)
                for number, fleet in fleets.items()
                if number > 1
            },
            "raw_1": partial(self._window, raw, raw.channel, ONE),
            "streams_1": partial(self._window, one, one.stream, ONE),
            "raw_shared": partial(raw.measure, self.shared, raw.channel, self.seconds, MANY),
            "streams_shared": partial(one.measure, self.shared, one.stream, self.seconds, MANY),
        }

    def builds(self, raw: Fleet, builds: Fleet) -> dict[str, Callable[[], Awaitable[Measured]]]:
        """Return the windows of a worker that builds, and of an echo of the same bytes."""
        return {
            "raw_large": partial(self._window, raw, raw.channel),
            "builds": partial(self._window, builds, builds.stream),
            "builds_pubsub": partial(self._window, builds, builds.channel),
        }

    def _window(self, fleet: Fleet, command: Command, in_flight: int = MANY) -> Awaitable[Measured]:
        return fleet.measure(self.lean, command, self.seconds, in_flight)


def _said(fleet: Fleet) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(fleet.said[0])
    return said


async def _idle(fleet: Fleet, seconds: float) -> float:
    """Return the share of a core that a worker takes which has nothing to do, in percent."""
    (process,) = fleet.processes
    await asyncio.sleep(QUIET)
    before = cpu_seconds(process.pid)
    await asyncio.sleep(seconds)
    return round((cpu_seconds(process.pid) - before) / seconds * 100, 2)


async def _memory(fleet: Fleet, callers: Callers, effort: Effort) -> dict[str, Any]:
    """Return what a worker holds before and after n builds."""
    (process,) = fleet.processes
    await callers.send(fleet.stream, effort.settled, MANY, effort.memory_seconds / 3)
    before = usage(process.pid).rss
    sent = await callers.send(fleet.stream, effort.requests, MANY, effort.memory_seconds * 2 / 3)
    after = usage(process.pid).rss
    return {
        "requests": sent,
        "rss_before_mb": round(before / 1e6, 1),
        "rss_after_mb": round(after / 1e6, 1),
        "growth_bytes_a_request": round((after - before) / sent, 1),
    }


def _machine() -> dict[str, Any]:
    loop = "uvloop" if find_spec("uvloop") else "asyncio"
    return {"cores": os.cpu_count(), "python": platform.python_version(), "loop": loop}
