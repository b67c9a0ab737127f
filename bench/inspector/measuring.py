"""The windows of the benchmark: a worker under load, with a page that looks on and without."""

import asyncio
import json
import re
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Protocol

from bench.bus.callers import lean_callers
from bench.bus.figures import MANY
from bench.bus.fleets import SLOTS, Fleet, Measured
from bench.bus.lean import Part
from bench.bus.load import Callers, Command, over_channel, over_stream
from bench.inspector.browser import opened
from bench.processes import HUNG_SECONDS, started
from service.adapters.embedded.binaries import find_server
from service.adapters.embedded.server import embedded_server
from tests.bus_server import free_port

#: Whose builds the page shows.
OWNER: Final = "owner_0"
_ANY_OWNER: Final = re.compile(rb"owner_\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    pairs: int
    #: Seconds of each window.
    seconds: float


FULL: Final = Effort(pairs=9, seconds=3.0)
QUICK: Final = Effort(pairs=3, seconds=1.0)


class Looker(Protocol):
    """A page that can be opened and closed."""

    async def open(self) -> None:
        """Open it; it hears of builds when this returns."""
        ...

    async def close(self) -> int:
        """Close it; returns how many builds it received."""
        ...


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows, one after the other."""

    watched: Measured
    #: Those that the page received.
    builds: int
    alone: Measured

    @property
    def throughput(self) -> float:
        """Return answers per second with the page, over those without."""
        return self.watched.window.rate / self.alone.window.rate

    @property
    def cpu(self) -> float:
        """Return the worker's CPU for an answer with the page, over that without."""
        return self.watched.cpu_us / self.alone.cpu_us


async def measured(effort: Effort, *, browser: bool) -> dict[str, Any]:
    """Measure and return the figures by their keys."""
    binary = find_server()
    if binary is None:
        raise SystemExit("no server to start: make bench-env")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        url, port = await enter(embedded_server(binary)), free_port()
        address = f"http://127.0.0.1:{port}"
        fleet = await _worker(stack, url, port)
        given = json.dumps([address, OWNER])
        process, _ = await enter(started("bench.inspector.page", given=given))
        bench = _Bench(fleet, await lean_callers(url, MANY), effort)
        page, every = _Page(process), _of_one_owner(fleet.stream)
        found: dict[str, Any] = {
            **await bench.pairs(page, every),
            "one_owner_of_200": await bench.pairs(page, fleet.stream),
        }
        if browser:
            async with opened(address, OWNER) as real:
                found["browser"] = await bench.pairs(real, every)
        return {**found, "pairs": effort.pairs}


async def _worker(stack: AsyncExitStack, url: str, port: int) -> Fleet:
    prefix = "bench.inspector."
    settings = {
        "bus": {"url": url, "prefix": prefix},
        "worker": {"concurrency": SLOTS},
        "health": {"port": None},
        "http": {"port": port},
    }
    given = json.dumps(settings)
    process, said = await stack.enter_async_context(started("bench.inspector.worker", given=given))
    stream = over_stream(prefix)
    return Fleet(processes=[process], said=[said], stream=stream, channel=over_channel(prefix))


def _of_one_owner(command: Command) -> Command:
    """Have every request be of the owner whose builds the page shows."""

    def sent(payload: bytes) -> tuple[Part, ...]:
        return command(_ANY_OWNER.sub(OWNER.encode(), payload))

    return sent


@dataclass(frozen=True, slots=True)
class _Bench:
    fleet: Fleet
    callers: Callers
    effort: Effort

    async def pairs(self, page: Looker, command: Command) -> dict[str, Any]:
        """Measure pairs, every second one in the other order."""
        # what is loaded at first use belongs to no window
        await self._watched(page, command)
        numbers = range(self.effort.pairs)
        return figures([await self._pair(page, command, number) for number in numbers])

    async def _pair(self, page: Looker, command: Command, number: int) -> Pair:
        if number % 2:
            alone = await self._alone(command)
            return Pair(*await self._watched(page, command), alone)
        watched, builds = await self._watched(page, command)
        return Pair(watched, builds, await self._alone(command))

    async def _alone(self, command: Command) -> Measured:
        return await self.fleet.measure(self.callers, command, self.effort.seconds, MANY)

    async def _watched(self, page: Looker, command: Command) -> tuple[Measured, int]:
        await page.open()
        found = await self._alone(command)
        return found, await page.close()


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the medians of pairs, and how many builds the page received in each."""
    return {
        "throughput_ratio": _middle(pairs, lambda pair: pair.throughput, 3),
        "throughput_ratio_by_pair": [round(pair.throughput, 3) for pair in pairs],
        "cpu_ratio": _middle(pairs, lambda pair: pair.cpu, 3),
        "rate": _middle(pairs, lambda pair: pair.alone.window.rate, 0),
        "cpu_us": _middle(pairs, lambda pair: pair.alone.cpu_us, 1),
        "cpu_us_watched": _middle(pairs, lambda pair: pair.watched.cpu_us, 1),
        "builds_shown": [pair.builds for pair in pairs],
    }


def _middle(pairs: Sequence[Pair], figure: Callable[[Pair], float], digits: int) -> float:
    return round(median(map(figure, pairs)), digits)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page in its own process, controlled by lines."""

    process: Process

    async def open(self) -> None:
        """Open it."""
        if (said := await self._next_line()) != "open":
            raise RuntimeError(f"the page does not open: {said}")

    async def close(self) -> int:
        """Close it; raises where it had failed by then."""
        said = await self._next_line()
        if not said.isdecimal():
            raise RuntimeError(f"the page failed: {said}")
        return int(said)

    async def _next_line(self) -> str:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the page has no pipes")
        self.process.stdin.write(b"\n")
        async with asyncio.timeout(HUNG_SECONDS):
            return (await self.process.stdout.readline()).decode().strip()
