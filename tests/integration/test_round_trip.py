"""Many commands in one round trip, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.adapters.bus_options import BusOptions
from service.adapters.redis.clients import make_clients
from service.adapters.redis.driver import REPLIES_PER_TIMEOUT, round_trip
from tests.integration.bus_places import until

pytestmark = pytest.mark.integration

#: A command that is never answered, as the list stays empty.
ENDLESS = ("BLPOP", "nothing", 0)

#: Seconds.
PATIENCE = 30.0


def _set_patience(client: Redis, seconds: float) -> None:
    """Set how long the connections that are free now wait for a server."""
    for connection in client.connection_pool._available_connections:
        connection.socket_timeout = seconds


@pytest.fixture(params=["", "?protocol=2", "?protocol=3"])
async def client(request: pytest.FixtureRequest, server_url: str) -> AsyncIterator[Redis]:
    """Give a client with more patience than a busy machine needs, over each protocol."""
    async with AsyncExitStack() as stack:
        options = BusOptions(socket_timeout_seconds=PATIENCE)
        yield make_clients(stack, server_url + request.param, options).commands


async def test_replies_have_the_order_of_their_commands(client: Redis) -> None:
    """However many there are, and wherever one of them fails."""
    commands = [("ECHO", number) for number in range(3 * REPLIES_PER_TIMEOUT)]
    commands[REPLIES_PER_TIMEOUT] = ("NOTHING", 0)

    replies = await round_trip(client, commands)

    error = replies.pop(REPLIES_PER_TIMEOUT)
    assert isinstance(error, ResponseError)
    assert replies == [
        b"%d" % number for number in range(3 * REPLIES_PER_TIMEOUT) if number != REPLIES_PER_TIMEOUT
    ]


async def test_replies_have_the_shape_that_the_driver_gives_them(client: Redis) -> None:
    """A command of two words is one, and its reply the same as from redis-py's own methods."""
    named, configured = await round_trip(
        client, [("CLIENT GETNAME",), ("CONFIG GET", "maxmemory-policy")]
    )

    assert named == await client.client_getname()
    assert configured == await client.config_get("maxmemory-policy")


async def test_a_silent_server_costs_the_time_limit_each_time(client: Redis) -> None:
    """Once it has run out, the connection is closed: no later reply is taken for another."""
    await round_trip(client, [("ECHO", "connected")])
    for _ in range(2):
        _set_patience(client, 0.1)
        with pytest.raises(RedisTimeoutError):
            await round_trip(client, [("ECHO", "a"), ENDLESS])
        _set_patience(client, PATIENCE)
        assert await round_trip(client, [("ECHO", "b")]) == [b"b"]


async def test_what_is_cancelled_leaves_no_reply_behind(client: Redis) -> None:
    """The next user of the connection reads the replies to its own commands."""
    client.connection_pool.connection_kwargs["socket_timeout"] = None
    waiting = asyncio.create_task(round_trip(client, [ENDLESS]))
    async with AsyncExitStack() as stack:
        watching = Redis.from_pool(client.connection_pool)
        stack.push_async_callback(watching.aclose)

        async def blocked() -> object:
            return (await watching.info("clients"))["blocked_clients"]

        await until(blocked)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert await round_trip(client, [("ECHO", "b")] * 2) == [b"b", b"b"]


async def test_a_broken_connection_is_made_again(client: Redis) -> None:
    """Commands that the server had no time to answer are sent again."""
    (number,) = await round_trip(client, [("CLIENT ID",)])

    await round_trip(client, [("CLIENT KILL", "ID", number, "SKIPME", "no")])

    assert await round_trip(client, [("ECHO", "b")]) == [b"b"]
