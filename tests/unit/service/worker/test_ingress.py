"""What is heard on the channel goes into the stream, whichever node of a cluster is away."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from service.errors import ContextBuilderError
from service.ports.bus import Bus, Enqueued
from service.worker import ingress
from service.worker.ingress import Ingress
from service.worker.runner import Pulse, repeat_with_backoff


class Channel:
    """A bus on which batches are heard; payloads that begin with ``b"away"`` have no node yet."""

    def __init__(self) -> None:
        self.away = True
        self.enqueued: list[bytes] = []
        self._batches: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._taken = asyncio.Condition()

    def say(self, *payloads: bytes) -> None:
        """Let a batch be heard."""
        self._batches.put_nowait([*payloads])

    async def until(self, *payloads: bytes) -> None:
        """Wait until these, and no others, have been enqueued."""
        async with asyncio.timeout(60), self._taken:
            await self._taken.wait_for(lambda: len(self.enqueued) >= len(payloads))
        assert self.enqueued == [*payloads]

    @asynccontextmanager
    async def subscribe_requests(self, _topic: str) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Listen."""
        yield self._heard()

    async def _heard(self) -> AsyncIterator[list[bytes]]:
        while True:
            yield await self._batches.get()

    async def enqueue(self, payloads: Sequence[bytes], _topic: str) -> list[Enqueued]:
        """Enqueue those whose node is there."""
        lost = [self.away and each.startswith(b"away") for each in payloads]
        async with self._taken:
            self.enqueued += [
                each for each, is_lost in zip(payloads, lost, strict=True) if not is_lost
            ]
            self._taken.notify_all()
        return [Enqueued.UNAVAILABLE if is_lost else Enqueued.ENQUEUED for is_lost in lost]


@pytest.fixture
async def channel(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Channel]:
    """Give a channel that is listened to, by one who holds two payloads at most."""
    monkeypatch.setattr(ingress, "HELD_SECONDS", 0)
    monkeypatch.setattr(ingress, "MAX_HELD", 2)

    async def refuse(_topic: str, payload: bytes, _error: ContextBuilderError) -> None:
        raise AssertionError(payload)

    channel = Channel()
    moving = Ingress(cast(Bus, cast(Any, channel)), refuse, Pulse())
    loops = {"ingress": moving.read_channel, "held": moving.retry_held}
    tasks = [asyncio.create_task(repeat_with_backoff(*loop)) for loop in loops.items()]
    yield channel
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_what_has_a_node_goes_on_and_goes_once(channel: Channel) -> None:
    """However often the rest is tried meanwhile, which goes when its node is back."""
    channel.say(b"away-1", b"1")
    channel.say(b"2")
    await channel.until(b"1", b"2")
    channel.away = False
    await channel.until(b"1", b"2", b"away-1")


async def test_who_holds_too_much_listens_no_more(channel: Channel) -> None:
    """Until there is room: what is heard stays in its order."""
    channel.say(b"away-1", b"1")
    channel.say(b"away-2", b"2")
    channel.say(b"3")
    await channel.until(b"1", b"2")
    channel.away = False
    await channel.until(b"1", b"2", b"away-1", b"away-2", b"3")
