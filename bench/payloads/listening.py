"""The other end of a bench of payloads: sends them, and hears all that comes of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from bench.names import DEAD, ROW_STREAMS, STREAM
from bench.payloads.reading import Sender
from bench.servers import entries

#: Seconds between two looks at the bus.
LOOK_SECONDS: Final = 0.02
#: Bytes in one round trip, so that a huge payload goes alone.
ROUND_TRIP: Final = 4_000_000


class Letter(NamedTuple):
    """An entry of the dead letter that was a request."""

    payload: bytes
    attempts: int


class Listener:
    """Sends payloads, and collects what is replied to them and what is dead-lettered."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        #: Who was answered since `forget`, once for each answer.
        self.answered: list[Sender] = []
        self.dead: list[Letter] = []

    async def send(self, payloads: Sequence[bytes], rows: Sequence[bytes]) -> None:
        """Add requests and rows to their streams."""
        waiting = [(STREAM, each) for each in payloads]
        waiting += [(ROW_STREAMS[place % 2], each) for place, each in enumerate(rows)]
        while waiting:
            size = 0
            async with self._client.pipeline(transaction=False) as pipeline:
                while waiting and size < ROUND_TRIP:
                    stream, payload = waiting.pop()
                    pipeline.xadd(stream, {"data": payload})
                    size += len(payload)
                await pipeline.execute()

    async def settled(self) -> None:
        """Wait until nothing is waiting or in anybody's hands."""
        for stream in (STREAM, *ROW_STREAMS):
            while await self._open(stream):  # noqa: ASYNC110 - other processes are at it
                await asyncio.sleep(LOOK_SECONDS)

    async def heard(self, count: int, seconds: float) -> None:
        """Wait until n outcomes are known, but not for long."""
        await self._collect()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.answered) + len(self.dead) < count:  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(LOOK_SECONDS)

    async def forget(self) -> None:
        """Start again."""
        self.answered.clear()
        self.dead.clear()

    async def listen(self, pubsub: Any) -> None:  # noqa: ANN401 - redis-py's is not typed
        """Collect what comes over channels, until cancelled."""
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
            if message:
                self._note(message["data"])

    async def _open(self, stream: str) -> bool:
        groups = await self._client.xinfo_groups(stream)
        return not groups or any(each["pending"] or each["lag"] for each in groups)

    async def _collect(self) -> None:
        """Take what lies in lists, streams and the dead letter."""
        for _, fields in await entries(self._client, DEAD):
            if fields[b"source"] == STREAM.encode():
                self.dead.append(Letter(fields[b"data"], int(fields[b"attempts"])))
        await self._client.delete(DEAD)
        async for key in self._client.scan_iter("context.reply*", count=1000):
            kind = await self._client.type(key)
            if kind == b"list":
                replies: Any = await self._client.lrange(key, 0, -1)
            else:
                replies = [fields[b"data"] for _, fields in await entries(self._client, key)]
            for reply in replies:
                self._note(reply)
            await self._client.delete(key)

    def _note(self, reply: bytes) -> None:
        response = json.loads(reply)
        if "status" in response["content"]:  # else it is an event
            self.answered.append(Sender(response["owner_key"], response["metadata"]["request_id"]))


@asynccontextmanager
async def open_listener(url: str) -> AsyncIterator[Listener]:
    """Listen on all channels of contexts while the context lasts."""
    async with Redis.from_url(url) as client, client.pubsub() as pubsub:
        await client.config_set("client-output-buffer-limit", "pubsub 256mb 64mb 60")
        await pubsub.psubscribe("context.*")
        await pubsub.get_message(timeout=5)
        listener = Listener(client)
        listening = asyncio.create_task(listener.listen(pubsub))
        try:
            yield listener
        finally:
            listening.cancel()
            await asyncio.wait([listening])
