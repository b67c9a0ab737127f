"""What every bus promises to those who settle its dead letters, on every bus there is."""

from contextlib import aclosing
from datetime import timedelta

import pytest
import redis.asyncio as redis

from service.adapters.bus_options import BusOptions
from service.adapters.redis.bus import open_redis_bus
from service.errors import OverloadedError
from service.ports.bus import Bus, DeadLetter
from service.wire.protocol import Topics
from tests.integration.bus_places import MemoryPlace, Place, RedisPlace, payloads, received
from tests.integration.conftest import StartServer

pytestmark = pytest.mark.integration


async def bury(bus: Bus, *bodies: bytes, reason: str = "unreadable") -> None:
    """Send requests and give them up."""
    for body in bodies:
        await bus.submit(body)
        for delivery in await received(bus):
            await bus.requests.dead_letter(delivery, reason)


async def letters(bus: Bus, *, newest_first: bool = False) -> list[DeadLetter]:
    """Return all entries."""
    return [each async for each in bus.dead_letters.scan(newest_first=newest_first)]


async def write(place: Place, fields: dict[str, bytes]) -> None:
    """Write to the dead letter as something else might."""
    name = place.prefix + Topics.CONTEXT_BUILD_DEAD
    if isinstance(place, RedisPlace):
        await place.client.xadd(name, dict(fields.items()))
    elif isinstance(place, MemoryPlace):
        place.hub.add(name, fields)


async def test_entries_are_listed_both_ways(place: Place) -> None:
    """Each with what is known of it, oldest or newest first, more than are read at once."""
    bus = await place.open("one")
    bodies = [b"%d" % number for number in range(45)]
    await bury(bus, *bodies)

    found = await letters(bus)
    newest = await letters(bus, newest_first=True)

    assert [each.payload for each in found] == bodies
    assert newest == found[::-1]
    first = found[0]
    assert (first.reason, first.source, first.attempts) == (
        "unreadable",
        place.requests.removeprefix(place.prefix),
        1,
    )
    assert first.at is not None
    assert abs(bus.now() - first.at) < timedelta(minutes=1)


async def test_nothing_is_listed_where_nothing_is(place: Place) -> None:
    """An empty dead letter is no error, and nothing of it can be found, retried or dropped."""
    bus = await place.open("one")

    assert await letters(bus) == []
    assert await letters(bus, newest_first=True) == []
    assert await bus.dead_letters.find("1-1") is None
    assert await bus.dead_letters.retry(["1-1"]) == 0
    assert await bus.dead_letters.drop(["1-1"]) == 0
    assert (await bus.dead_letters.retry([]), await bus.dead_letters.drop([])) == (0, 0)


async def test_listing_leaves_out_what_comes_meanwhile(place: Place) -> None:
    """So a retry of all ends, also where what is retried dies again at once."""
    bus = await place.open("one")
    await bury(bus, *(b"%d" % number for number in range(25)))

    seen = 0
    async for _ in bus.dead_letters.scan():
        seen += 1
        await bury(bus, b"again")

    assert seen == 25


async def test_listing_may_end_early(place: Place) -> None:
    """Who has seen enough stops."""
    bus = await place.open("one")
    await bury(bus, *(b"%d" % number for number in range(3)))

    async with aclosing(bus.dead_letters.scan(newest_first=True)) as found:
        assert (await anext(found)).payload == b"2"


async def test_entry_is_found_by_its_id(place: Place) -> None:
    """One entry, as it was listed."""
    bus = await place.open("one")
    await bury(bus, b"1", b"2")
    _, second = await letters(bus)

    assert await bus.dead_letters.find(second.id) == second


async def test_retried_entry_is_a_new_one(place: Place) -> None:
    """It leaves the dead letter and is delivered as if for the first time; others stay."""
    bus = await place.open("one")
    await bury(bus, b"\xff1", b"2")
    first, second = await letters(bus)

    assert await bus.dead_letters.retry([first.id, first.id]) == 1

    (delivery,) = await received(bus)
    assert (delivery.payload, delivery.attempt) == (b"\xff1", 1)
    assert await letters(bus) == [second]


async def test_results_go_back_to_their_own_stream(place: Place) -> None:
    """A row that could not be recorded is no request."""
    bus = await place.open("one")
    await bus.append(Topics.TOOLS_RESULTS, b"row")
    (delivery,) = await bus.results.receive(10, wait=1)
    await bus.results.dead_letter(delivery, "unreadable")
    (letter,) = await letters(bus)

    assert await bus.dead_letters.retry([letter.id]) == 1

    (again,) = await bus.results.receive(10, wait=1)
    assert (again.source, again.payload) == (Topics.TOOLS_RESULTS, b"row")
    assert await received(bus) == []


async def test_foreign_entries_are_shown_and_stay(place: Place) -> None:
    """What something else wrote is listed as far as it goes, and only dropped by hand."""
    bus = await place.open("one")
    source = Topics.CONTEXT_BUILD_REQUEST.encode()
    await write(place, {"other": b"1"})
    await write(place, {"data": b"x", "source": b"\xff", "at": b"now", "attempts": b"many"})
    await write(place, {"source": source})
    found = await letters(bus)

    assert [(each.payload, each.attempts, each.at) for each in found] == [
        (b"", 0, None),
        (b"x", 0, None),
        (b"", 0, None),
    ]
    assert await bus.dead_letters.retry([each.id for each in found]) == 0
    assert await letters(bus) == found
    assert await place.stream(place.requests) == []


async def test_dropped_entries_are_gone(place: Place) -> None:
    """For good, and counted."""
    bus = await place.open("one")
    await bury(bus, b"1", b"2", b"3")
    first, second, third = await letters(bus)

    assert await bus.dead_letters.drop([first.id, third.id, "1-1"]) == 2

    assert await letters(bus) == [second]
    assert payloads(await received(bus)) == []


# --- what only a server can show -------------------------------------------------------------


async def test_retry_that_fails_loses_nothing(server: StartServer) -> None:
    """A server that takes no entry keeps the dead one."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        await bury(bus, b"1")
        (letter,) = await letters(bus)
        with running.client() as client:
            client.config_set("maxmemory", 1)

        with pytest.raises(OverloadedError):
            await bus.dead_letters.retry([letter.id])

        with running.client() as client:
            client.config_set("maxmemory", 0)
        assert await letters(bus) == [letter]
        assert await bus.dead_letters.retry([letter.id]) == 1


@pytest.mark.parametrize("protocol", [2, 3])
async def test_both_protocols_list_alike(server_url: str, prefix: str, protocol: int) -> None:
    """For any shape of the driver's replies, and any bytes in a field's name."""
    url = f"{server_url}?protocol={protocol}"
    async with (
        open_redis_bus(url, BusOptions(prefix=prefix)) as bus,
        redis.Redis.from_url(server_url) as client,
    ):
        await client.xadd(prefix + Topics.CONTEXT_BUILD_DEAD, {b"\xff": b"1", b"data": b"2"})

        (letter,) = await letters(bus)

        assert letter.payload == b"2"
        assert await letters(bus, newest_first=True) == [letter]
        assert await bus.dead_letters.find(letter.id) == letter
