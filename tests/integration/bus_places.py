"""Buses to test, access to their servers, and helpers for the tests."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import redis.asyncio as redis

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import open_memory_bus
from service.adapters.memory.hub import MemoryHub
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.servers import read_entries
from service.adapters.redis.shards import shard_topic, shards_key
from service.ports.bus import Answer, Bus, Delivery, Identity
from service.wire.protocol import Topics

Result = TypeVar("Result")
#: Seconds that run out while a test waits for it.
SHORT = 0.05
#: Whom the answers of `answer` are for: an owner of the first of two to four shards, to which
#: payloads go as well that name no owner. So do the owners "d" and "db".
ASKED = Identity("0xAB2", "msg_1")


class Place(Protocol):
    """The server of a test's buses, and access to it."""

    prefix: str
    #: How many streams requests are spread over.
    shards: int

    @property
    def requests(self) -> str:
        """Return the stream of requests that name no owner."""
        ...

    async def open(self, consumer: str, **options: Any) -> Bus:
        """Open a bus for another worker."""
        ...

    async def stream(self, name: str) -> list[dict[str, bytes]]:
        """Return the entries of a stream."""
        ...

    async def replies(self, name: str, kind: str) -> list[bytes]:
        """Return the replies in a list or a stream."""
        ...


@dataclass
class MemoryPlace:
    """A hub in this process."""

    stack: AsyncExitStack
    hub: MemoryHub
    prefix: str
    shards: int = 1

    @property
    def requests(self) -> str:
        """Return the stream of requests."""
        return self.prefix + Topics.CONTEXT_BUILD_REQUEST

    async def open(self, consumer: str, **options: Any) -> Bus:
        """Open a bus for another worker."""
        chosen = BusOptions(consumer=consumer, prefix=self.prefix, **options)
        return await self.stack.enter_async_context(open_memory_bus(chosen, self.hub))

    async def stream(self, name: str) -> list[dict[str, bytes]]:
        """Return the entries of a stream."""
        return [dict(fields) for fields in self.hub.streams[name].entries.values()]

    async def replies(self, name: str, kind: str) -> list[bytes]:
        """Return the replies in a list or a stream."""
        found = self.hub.replies.get(name)
        assert found is None or found.kind == kind
        return found.payloads if found else []


@dataclass
class RedisPlace:
    """A server or a cluster, with a prefix of the test's own."""

    stack: AsyncExitStack
    url: str
    prefix: str
    client: redis.Redis
    shards: int = 1

    @property
    def requests(self) -> str:
        """Return the stream of requests that name no owner."""
        return self.prefix + shard_topic(0, self.shards)

    async def divide(self, shards: int) -> None:
        """Spread requests over n streams."""
        self.shards = shards
        await self.client.set(shards_key(self.prefix), shards)

    async def open(self, consumer: str, **options: Any) -> Bus:
        """Open a bus for another worker."""
        chosen = BusOptions(consumer=consumer, prefix=self.prefix, **options)
        return await self.stack.enter_async_context(open_redis_bus(self.url, chosen))

    async def stream(self, name: str) -> list[dict[str, bytes]]:
        """Return the entries of a stream."""
        reply = await self.client.xread({name: "0"})
        return [
            {field.decode(): value for field, value in fields.items()}
            for _, (_, fields) in read_entries(reply)
        ]

    async def replies(self, name: str, kind: str) -> list[bytes]:
        """Return the replies in a list or a stream."""
        if kind == "stream":
            return [fields["data"] for fields in await self.stream(name)]
        found: Any = await self.client.lrange(name, 0, -1)
        return list(found)


async def until(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Try again until something comes of it."""
    async with asyncio.timeout(60):
        while True:
            if result := await attempt():
                return result
            await asyncio.sleep(0.01)


async def holds(fact: bool) -> bool:
    """Give a fact to `until`."""
    return fact


async def received(bus: Bus, slots: int = 10) -> list[Delivery]:
    """Read what waits in the request stream."""
    return await bus.requests.receive(slots, wait=0)


async def taken_over(bus: Bus) -> list[Delivery]:
    """Claim what another worker let slip."""
    return await until(lambda: bus.requests.claim(10))


def payloads(deliveries: Sequence[Delivery]) -> list[bytes]:
    """Return what the deliveries carry."""
    return [delivery.payload for delivery in deliveries]


def answer(delivery: Delivery, **changes: Any) -> Answer:
    """Answer a delivery."""
    given: dict[str, Any] = {
        "delivery": delivery,
        "identity": ASKED,
        "fingerprint": "f1",
        "response": b'{"n":1}',
        "reply_to": "unheard",
    }
    return Answer(**(given | changes))
