"""Move requests into the request stream: from channels, and from that of recalls.

A recall on its own stream is moved, not answered there: workers read one more stream only in the
background, and all that is promised of requests holds for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from service.errors import BusError, ContextBuilderError, OverloadedError
from service.ports.bus import NO_DATA, Bus, Delivery, Enqueued
from service.wire.protocol import Topics
from service.worker.runner import Pulse, repeat_with_backoff

log = structlog.get_logger(__name__)

#: Limit of the payloads that wait for unavailable nodes; above it, no more requests are taken from
#: the channel.
MAX_HELD: Final = 1_000
#: Seconds between attempts to enqueue them; while a node is unavailable, one costs next to nothing.
HELD_SECONDS: Final = 0.25

#: Limit of the recalls in one read, and the seconds that a read waits for them.
BATCH: Final = 64
WAIT: Final = 0.5

#: By outcome: the reason in the log, and the error for the sender.
REFUSALS: Final[Mapping[Enqueued, tuple[str, ContextBuilderError]]] = {
    Enqueued.REFUSED: (
        "backlog",
        OverloadedError("too many requests are waiting; try again later"),
    ),
    Enqueued.UNUSABLE: (
        "stream",
        BusError("the request stream can't take entries until an operator mends it"),
    ),
}


class Ingress:
    """Enqueues requests from the channel, and retries through outages, as no other worker may.

    Payloads for an unavailable node of a cluster are held back, so that the others can go on.
    """

    def __init__(
        self,
        bus: Bus,
        refuse: Callable[[str, bytes, ContextBuilderError], Awaitable[object]],
        pulse: Pulse,
        topic: str = Topics.CONTEXT_BUILD_REQUEST,
    ) -> None:
        """Read a topic of a bus; ``refuse`` answers a request that the stream can't take."""
        self._bus = bus
        self._topic = topic
        self._refuse = refuse
        self._pulse = pulse
        #: Payloads that wait for unavailable nodes.
        self._held: list[bytes] = []
        self._held_changed = asyncio.Condition()

    async def read_channel(self) -> None:
        """Enqueue requests from the channel until cancelled; raises `BusError`."""
        async with self._bus.subscribe_requests(self._topic) as batches:
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

        await repeat_with_backoff(f"ingress {self._topic}", attempt, done, self._pulse)

    async def retry_held(self) -> None:
        """Wait for held payloads, and try once to enqueue them; raises `BusError`."""
        async with self._held_changed:
            await self._held_changed.wait_for(lambda: self._held)
        await asyncio.sleep(HELD_SECONDS)
        tried = self._held[:]
        unavailable = await self._enqueue(tried)
        async with self._held_changed:
            self._held[: len(tried)] = unavailable
            self._held_changed.notify_all()

    async def _enqueue(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Enqueue payloads, refuse those that can't be; return those of unavailable nodes."""
        outcomes = list(zip(payloads, await self._bus.enqueue(payloads, self._topic), strict=True))
        for refusal, (reason, error) in REFUSALS.items():
            refused = [payload for payload, outcome in outcomes if outcome is refusal]
            if refused:
                log.warning("request.refused", reason=reason, count=len(refused))
                # concurrently, or refusing would take longer than sending as many requests again
                await asyncio.gather(
                    *(self._refuse(self._topic, payload, error) for payload in refused)
                )
        return [payload for payload, outcome in outcomes if outcome is Enqueued.UNAVAILABLE]


class RecallStream:
    """Moves entries from the stream of recalls, each at least once: copies are answered once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def take_new(self) -> None:
        """Move new entries; raises `BusError`, after which they are moved by `claim`."""
        await self._move(await self._bus.recalls.receive(BATCH, wait=WAIT))

    async def claim(self) -> None:
        """Move the entries that were not moved by those who have read them."""
        await self._move(await self._bus.recalls.claim(BATCH))

    async def trim(self) -> None:
        """Delete the entries that have been moved."""
        await self._bus.recalls.trim()

    async def _move(self, deliveries: Sequence[Delivery]) -> None:
        # side by side: in a cluster, those for an unavailable node don't hold up the others
        moving = (self._move_one(delivery) for delivery in deliveries)
        for outcome in await asyncio.gather(*moving, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _move_one(self, delivery: Delivery) -> None:
        if delivery.payload:
            await self._bus.submit(delivery.payload, recall=delivery.token)
            await self._bus.recalls.ack([delivery])
        else:
            await self._bus.recalls.dead_letter(delivery, NO_DATA)
