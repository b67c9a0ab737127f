"""How much waits and how much is in work, on every bus there is."""

import pytest
import redis.asyncio as redis

from service.adapters.bus_options import BusOptions
from service.adapters.redis.bus import open_redis_bus
from service.errors import BusError
from service.ports.bus import Depth
from service.wire.protocol import Topics
from tests.integration.bus_places import Place, received

pytestmark = pytest.mark.integration


async def test_how_much_waits_is_reported(place: Place) -> None:
    """What the group has not read, and what is in anybody's hands, with the age of its oldest."""
    one, two = await place.open("one"), await place.open("two")
    for payload in (b"1", b"2", b"3"):
        await one.submit(payload)
    taken = await received(one, 2)
    depth = await two.requests.depth()

    assert (depth.lag, depth.pending) == (1, 2)
    assert 0 <= depth.oldest_pending_seconds < 60
    await received(two)
    await one.requests.ack(taken)
    depth = await one.requests.depth()
    assert (depth.lag, depth.pending) == (0, 1)


async def test_how_much_waits_is_reported_for_all_streams(place: Place) -> None:
    """Of those that an inbox reads, together."""
    bus = await place.open("one")
    await bus.results.receive(2, wait=0)
    await bus.append(Topics.LLM_RESULTS, b"1")
    await bus.append(Topics.TOOLS_RESULTS, b"2")

    assert await bus.results.depth() == Depth(lag=2, pending=0, oldest_pending_seconds=0)


async def test_trimming_leaves_the_lag_right(place: Place) -> None:
    """Entries that everybody is done with don't count, whether they are still there or not."""
    bus = await place.open("one")
    for payload in (b"1", b"2", b"3"):
        await bus.submit(payload)
    await bus.requests.ack(await received(bus, 2))
    await bus.requests.trim()

    assert await bus.requests.depth() == Depth(lag=1, pending=0, oldest_pending_seconds=0)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_lag_that_the_server_cannot_report_is_none(
    server_url: str, prefix: str, protocol: int
) -> None:
    """As after an entry in the midst was deleted by hand; and no group is an error."""
    stream = prefix + Topics.CONTEXT_BUILD_REQUEST
    async with (
        open_redis_bus(f"{server_url}?protocol={protocol}", BusOptions(prefix=prefix)) as bus,
        redis.Redis.from_url(server_url) as client,
    ):
        with pytest.raises(BusError, match="count the entries that wait"):
            await bus.requests.depth()
        entries = [await bus.submit(payload) for payload in (b"1", b"2", b"3")]
        await received(bus, 1)
        await client.xdel(stream, entries[1])
        depth = await bus.requests.depth()

    assert (depth.lag, depth.pending) == (None, 1)
