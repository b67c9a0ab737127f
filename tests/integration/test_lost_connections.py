"""Connections that were lost as they lay idle, on every event loop that workers run on."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.redis.clients import make_clients
from service.adapters.redis.driver import round_trip

pytestmark = pytest.mark.integration


def _loop(module: str) -> Callable[[], asyncio.AbstractEventLoop]:
    new: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip(module).new_event_loop
    return new


async def _after_loss(url: str) -> list[object]:
    """Return what a server replies on a connection that has just been lost."""
    async with AsyncExitStack() as stack:
        client = make_clients(stack, url, BusOptions()).commands
        pool: Any = client.connection_pool
        await client.ping()
        check = pool.ensure_connection

        async def lose(connection: Any) -> None:
            await check(connection)
            connection._writer.transport.abort()
            # until the loop has notified everything that waits for it
            await asyncio.sleep(0.01)

        pool.ensure_connection = lose
        return await round_trip(client, [("PING",)])


@pytest.mark.parametrize("module", ["asyncio", "uvloop"])
async def test_a_connection_lost_just_now_is_opened_again(redis_url: str, module: str) -> None:
    """The caller doesn't hear of it; uvloop's `RuntimeError` would end the worker."""
    make = _loop(module)

    def run() -> list[object]:
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(_after_loss(redis_url))

    assert await asyncio.to_thread(run) in ([True], [b"PONG"])
