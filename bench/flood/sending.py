"""Large requests, and what their sender learns of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

from redis.asyncio import Redis

from bench.names import RESPONSES, STREAM, result_key

#: Bytes of a request.
SIZE: Final = 4096
#: Requests in one round trip.
BATCH: Final = 500


def request(number: int) -> bytes:
    """Return a request of `SIZE` bytes that costs little to build, and may wait for an hour."""
    asked = {
        "id": f"msg_{number}",
        "owner_key": f"owner_{number}",
        "content": {"current_input": "Hello", "tools": None},
        # a list takes its replies; what is left for the common channel are refusals
        "metadata": {
            "reply_to": f"context.reply.{number}",
            "reply_kind": "list",
            "timeout_ms": 3_600_000,
            "padding": "",
        },
    }
    asked["metadata"]["padding"] = "x" * (SIZE - len(json.dumps(asked)))  # type: ignore[index] # an object, see above
    return json.dumps(asked).encode()


async def add(client: Redis, count: int) -> None:
    """Add requests to the stream, as fast as that goes."""
    for numbers in _batches(count):
        async with client.pipeline(transaction=False) as pipeline:
            for number in numbers:
                pipeline.xadd(STREAM, {"data": request(number)})
            await pipeline.execute()


async def publish(client: Redis, count: int) -> int:
    """Publish requests, as fast as possible; returns how many had no subscriber."""
    unheard = 0
    for numbers in _batches(count):
        async with client.pipeline(transaction=False) as pipeline:
            for number in numbers:
                pipeline.publish(STREAM, request(number))
            unheard += sum(receivers == 0 for receivers in await pipeline.execute())
    return unheard


async def answered(client: Redis, count: int) -> int:
    """Return how many requests have a stored answer."""
    found = 0
    for numbers in _batches(count):
        found += await client.exists(
            *(result_key(f"owner_{number}", f"msg_{number}") for number in numbers)
        )
    return found


@asynccontextmanager
async def refusals(client: Redis) -> AsyncIterator[set[str]]:
    """Collect the ids of the requests that are refused as `overloaded`."""
    refused: set[str] = set()

    async def listen() -> None:
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
            response = json.loads(message["data"]) if message else {}
            if response.get("content", {}).get("error", {}).get("code") == "overloaded":
                refused.add(response["metadata"]["request_id"])

    async with client.pubsub() as pubsub:
        await pubsub.subscribe(RESPONSES)
        await pubsub.get_message(timeout=5)
        listening = asyncio.create_task(listen())
        try:
            yield refused
        finally:
            listening.cancel()
            await asyncio.wait([listening])


def _batches(count: int) -> Iterator[range]:
    return (range(start, min(start + BATCH, count)) for start in range(0, count, BATCH))
