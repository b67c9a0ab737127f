"""Move requests from the request channel into the request stream."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from service.ports.bus import Bus, Enqueued
from service.worker.loop import Pulse, repeat_with_backoff

log = structlog.get_logger(__name__)

#: Limit of the payloads that wait for unavailable nodes; above it, no more requests are taken from
#: the channel.
MAX_HELD: Final = 1_000
#: Seconds between attempts to enqueue them; while a node is unavailable, one costs next to nothing.
HELD_SECONDS: Final = 0.25


class Ingress:
    """Enqueues requests from the channel, and retries through outages, as no other worker may.

    Payloads for an unavailable node of a cluster are held back, so that the others can go on.
    """

    def __init__(
        self, bus: Bus, refuse: Callable[[bytes], Awaitable[object]], pulse: Pulse
    ) -> None:
        """Read from a bus; ``refuse`` answers a request when the backlog is full."""
        self._bus = bus
        self._refuse = refuse
        self._pulse = pulse
        #: Payloads that wait for unavailable nodes.
        self._held: list[bytes] = []
        self._held_changed = asyncio.Condition()

    async def run(self) -> None:
        """Enqueue requests from the channel until cancelled."""
        await repeat_with_backoff("ingress", self._read_channel)

    async def run_held(self) -> None:
        """Enqueue held payloads until cancelled."""
        await repeat_with_backoff("held", self._retry_held)

    async def _read_channel(self) -> None:
        async with self._bus.subscribe_requests() as batches:
            async for batch in batches:
                await self._move(batch)

    async def _move(self, payloads: Sequence[bytes]) -> None:
        done = asyncio.Event()

        async def attempt() -> None:
            unavailable = await self._enqueue(payloads)
            done.set()
            if unavailable:
                async with self._held_changed:
                    self._held += unavailable
                    self._held_changed.notify_all()
                    await self._held_changed.wait_for(lambda: len(self._held) < MAX_HELD)

        await repeat_with_backoff("ingress", attempt, done, self._pulse)

    async def _retry_held(self) -> None:
        async with self._held_changed:
            await self._held_changed.wait_for(lambda: self._held)
        await asyncio.sleep(HELD_SECONDS)
        tried = self._held[:]
        unavailable = await self._enqueue(tried)
        async with self._held_changed:
            self._held[: len(tried)] = unavailable
            self._held_changed.notify_all()

    async def _enqueue(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Enqueue payloads, refuse those beyond the backlog; return those of unavailable nodes."""
        outcomes = list(zip(payloads, await self._bus.enqueue(payloads), strict=True))
        refused = [payload for payload, outcome in outcomes if outcome is Enqueued.REFUSED]
        if refused:
            log.warning("request.refused", reason="backlog", count=len(refused))
            # concurrently, or refusing would take longer than sending as many requests again
            await asyncio.gather(*map(self._refuse, refused))
        return [payload for payload, outcome in outcomes if outcome is Enqueued.UNAVAILABLE]
