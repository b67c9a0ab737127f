"""The processes that answer, each fleet with topics of its own on one server."""

import asyncio
import json
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.bus.load import (
    RAW_REQUESTS,
    REQUESTS,
    Callers,
    Command,
    Window,
    over_channel,
    over_stream,
)
from bench.processes import cpu_seconds, started

#: Requests that a worker works on at the same time: all in flight.
SLOTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A window, and the CPU that was taken in it."""

    window: Window
    #: Of all processes of the fleet.
    cpu_seconds: float
    #: Of the callers, which are in this process.
    caller_seconds: float

    @property
    def cpu_us(self) -> float:
        """Return microseconds of the fleet's CPU for an answer."""
        return self.cpu_seconds / len(self.window.latencies) * 1e6

    @property
    def caller_us(self) -> float:
        """Return microseconds of a caller's CPU for an answer."""
        return self.caller_seconds / len(self.window.latencies) * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Processes that share the requests, and ways to send to them."""

    processes: Sequence[Process]
    #: The line that each one printed when it was ready.
    said: Sequence[str]
    stream: Command
    channel: Command

    async def measure(
        self, callers: Callers, command: Command, seconds: float, in_flight: int
    ) -> Measured:
        """Have it called for a while."""
        marks: list[tuple[float, float]] = []
        window = await callers.during(
            command, seconds, in_flight, lambda: marks.append(self._cpu())
        )
        if not window.latencies:
            raise RuntimeError("no answer came while it was measured")
        (fleet, caller), (fleet_after, caller_after) = marks
        return Measured(
            window=window, cpu_seconds=fleet_after - fleet, caller_seconds=caller_after - caller
        )

    def _cpu(self) -> tuple[float, float]:
        """Return the CPU that the fleet, and the callers, have taken so far."""
        fleet = sum(cpu_seconds(process.pid) for process in self.processes)
        return fleet, time.process_time()


async def workers(stack: AsyncExitStack, url: str, kind: str, number: int) -> Fleet:
    """Start workers of a kind of `bench.bus.worker`."""
    prefix = f"bench.{kind}.{number}."
    bus = {"url": url, "prefix": prefix}
    settings = json.dumps({"bus": bus, "worker": {"concurrency": SLOTS}})
    start = partial(started, "bench.bus.worker", kind, given=settings)
    here = await asyncio.gather(*(stack.enter_async_context(start()) for _ in range(number)))
    return Fleet(
        processes=[process for process, _ in here],
        said=[line for _, line in here],
        stream=over_stream(prefix),
        channel=over_channel(prefix + REQUESTS),
    )


async def echo(stack: AsyncExitStack, url: str, size: int) -> Fleet:
    """Start the echo with answers of n bytes."""
    channel = f"bench.raw.{size}.{RAW_REQUESTS}"
    process, line = await stack.enter_async_context(
        started("bench.bus.echo", channel, str(size), given=url)
    )
    command = over_channel(channel)
    return Fleet(processes=[process], said=[line], stream=command, channel=command)
