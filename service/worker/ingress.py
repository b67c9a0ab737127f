"""Requests that are heard on the channel, on their way into the stream."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from service.ports.bus import Bus, Enqueued
from service.worker.loop import Pulse, keep_on

log = structlog.get_logger(__name__)

#: Payloads that wait for nodes that are away; with more, nothing is listened for until some go.
MOST_HELD: Final = 1_000
#: Seconds between two attempts to enqueue them: while a node is away, one costs next to nothing.
HELD_SECONDS: Final = 0.25


class Ingress:
    """Moves what is heard into the stream, through every outage: nobody else may have heard it.

    What belongs to a node of a cluster that is away waits apart, and the rest goes on.
    """

    def __init__(
        self, bus: Bus, refuse: Callable[[bytes], Awaitable[object]], pulse: Pulse
    ) -> None:
        """Listen on a bus; ``refuse`` answers a request for which there is no room."""
        self._bus = bus
        self._refuse = refuse
        self._pulse = pulse
        self._held: list[bytes] = []
        #: Told of changes to those.
        self._change = asyncio.Condition()

    async def run(self) -> None:
        """Move what is heard, until cancelled."""
        await keep_on("ingress", self._listen)

    async def run_held(self) -> None:
        """Move what waits for nodes that are away, until cancelled."""
        await keep_on("held", self._move_held)

    async def _listen(self) -> None:
        async with self._bus.subscribe_requests() as batches:
            async for batch in batches:
                await self._move(batch)

    async def _move(self, payloads: Sequence[bytes]) -> None:
        done = asyncio.Event()

        async def attempt() -> None:
            away = await self._enqueue(payloads)
            done.set()
            if away:
                async with self._change:
                    self._held += away
                    self._change.notify_all()
                    await self._change.wait_for(lambda: len(self._held) < MOST_HELD)

        await keep_on("ingress", attempt, done, self._pulse)

    async def _move_held(self) -> None:
        async with self._change:
            await self._change.wait_for(lambda: self._held)
        await asyncio.sleep(HELD_SECONDS)
        tried = self._held[:]
        away = await self._enqueue(tried)
        async with self._change:
            self._held[: len(tried)] = away
            self._change.notify_all()

    async def _enqueue(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Enqueue what there is room for, and refuse the rest; return those whose node is away."""
        fates = await self._bus.enqueue(payloads)
        found = list(zip(payloads, fates, strict=True))
        refused = [payload for payload, fate in found if fate is Enqueued.REFUSED]
        if refused:
            log.warning("request.refused", reason="backlog", count=len(refused))
            # one after the other, they would take longer than it takes to be sent as many again
            await asyncio.gather(*map(self._refuse, refused))
        return [payload for payload, fate in found if fate is Enqueued.AWAY]
