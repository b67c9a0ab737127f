"""Several worker processes on a real server: each request answered once, with any worker killed."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis

from bench.crew import open_crew

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

REQUESTS = "context.build.request"
RESPONSES = "context.build.response"

#: Enough for each worker to take up some of either kind, and to be offered what others have.
MANY = 300

Answers = dict[str, list[dict[str, Any]]]


def asking(number: int, **metadata: Any) -> bytes:
    """Return a plain JSON request."""
    request = {
        "id": f"msg_{number}",
        "owner_key": f"owner_{number % 20}",
        "content": {"current_input": f"This is number {number}."},
        "metadata": {"timeout_ms": 60_000, **metadata},
    }
    return json.dumps(request).encode()


@asynccontextmanager
async def answers(client: redis.Redis) -> AsyncIterator[Answers]:
    """Collect the responses on the common channel, by the id of their request."""
    heard: Answers = defaultdict(list)

    async def listen(pubsub: Any) -> None:
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
            if message:
                response = json.loads(message["data"])
                heard[response["metadata"]["request_id"]].append(response)

    async with client.pubsub() as pubsub:
        await pubsub.subscribe(RESPONSES)
        await pubsub.get_message(timeout=5)
        listening = asyncio.create_task(listen(pubsub))
        try:
            yield heard
        finally:
            listening.cancel()
            await asyncio.wait([listening])


async def until(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 60) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while True:
            held = holds()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def crew(url: str, folder: Path, size: int) -> AsyncIterator[None]:
    """Run worker processes on one server and one database; all of them listen."""
    settings = {
        "CTXB_BUS__URL": url,
        "CTXB_BUS__LEASE_SECONDS": "1.5",
        "CTXB_BUS__HEARTBEAT_SECONDS": "0.3",
        "CTXB_STORE__URL": f"sqlite:///{folder / 'history.db'}",
    }
    async with redis.Redis.from_url(url) as client, open_crew(folder, settings, size=size):

        async def all_listen() -> bool:
            return dict(await client.pubsub_numsub(REQUESTS)).get(REQUESTS.encode(), 0) == size

        await until(all_listen)
        yield


async def settled(client: redis.Redis) -> bool:
    """Return whether nothing is waiting or in anybody's hands."""
    (group,) = await client.xinfo_groups(REQUESTS)
    return (group["pending"], group["lag"]) == (0, 0)


async def test_three_workers_answer_each_of_many_requests_once(
    server_url: str, tmp_path: Path
) -> None:
    """Half of them published, half added to the stream, every tenth sent again."""
    async with (
        redis.Redis.from_url(server_url) as client,
        crew(server_url, tmp_path, 3),
        answers(client) as heard,
    ):
        retries = 0
        for number in range(MANY):
            for _ in range(2 if number % 10 == 0 else 1):
                if number % 2:
                    assert await client.publish(REQUESTS, asking(number)) == 3
                else:
                    await client.xadd(REQUESTS, {"data": asking(number)})
        for number in range(0, MANY, 25):
            retries += 1
            await client.publish(REQUESTS, asking(number, correlation_id=f"again_{number}"))
        await until(lambda: len(heard) == MANY)
        await until(
            lambda: (
                sum(
                    r["metadata"]["correlation_id"] is not None for rs in heard.values() for r in rs
                )
                >= retries
            )
        )
        await until(lambda: settled(client))

    responses = [response for each in heard.values() for response in each]
    assert all(response["content"]["status"] == "success" for response in responses)
    assert len({response["id"] for response in responses}) == MANY
    for each in heard.values():
        assert len({response["id"] for response in each}) == 1
        assert all(response["content"] == each[0]["content"] for response in each)


async def test_requests_sent_before_any_worker_are_answered(
    server_url: str, tmp_path: Path
) -> None:
    """The stream keeps them."""
    async with redis.Redis.from_url(server_url) as client, answers(client) as heard:
        for number in range(20):
            await client.xadd(REQUESTS, {"data": asking(number)})
        async with crew(server_url, tmp_path, 1):
            await until(lambda: len(heard) == 20)
