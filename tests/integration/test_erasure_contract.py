"""What every bus promises of an owner who is to be forgotten, on every bus there is."""

import asyncio
import json
import zlib
from dataclasses import replace

import pytest

from service.ports.bus import Bus, Forgotten, Identity
from service.wire.protocol import ROW_TOPICS
from tests.integration.bus_places import MemoryPlace, Place, RedisPlace, answer, received

pytestmark = pytest.mark.integration

HOUR = 3600.0
#: Owners that globs, JSON and prefixes of one another might mix up.
OWNERS = ("o", "o*", "O", 'é"\\', "o\0", "[o]")


def request(owner: str, name: str = "msg_1") -> bytes:
    """Return a request."""
    asked = {"id": name, "owner_key": owner, "content": {"current_input": "secret"}}
    return json.dumps(asked).encode()


def report(owner: str) -> bytes:
    """Return a report, as far as it matters whose it is."""
    return zlib.compress(json.dumps({"version": 1, "request": {"owner_key": owner}}).encode())


async def answered(bus: Bus, owner: str, name: str = "msg_1") -> Identity:
    """Have a request of an owner answered; returns what its answer is stored under."""
    await bus.submit(request(owner, name))
    (delivery,) = await received(bus)
    identity = Identity(owner, name)
    response = json.dumps({"id": "r", "owner_key": owner, "content": {}}, ensure_ascii=False)
    await bus.finish([answer(delivery, identity=identity, response=response.encode())])
    await bus.requests.trim()
    return identity


async def bury(bus: Bus, payload: bytes) -> None:
    """Send something and give it up."""
    await bus.submit(payload)
    for delivery in await received(bus):
        await bus.requests.dead_letter(delivery, "poison")
    await bus.requests.trim()


async def dead(bus: Bus) -> list[bytes]:
    """Return the payloads of the dead letter."""
    return [letter.payload async for letter in bus.dead_letters.scan()]


async def test_an_owner_is_forgotten_and_no_other(place: Place) -> None:
    """Answers, build reports and dead letters go, whatever characters the key has; once."""
    bus = await place.open("one")
    for number, owner in enumerate(OWNERS):
        for name in ("msg_1", "msg_2"):
            await answered(bus, owner, name)
        await bus.reports.put({f"bld_{number}": report(owner)}, HOUR)
        await bury(bus, request(owner))
    expected = Forgotten(results=2, reports=1, dead_letters=1)

    for number, owner in enumerate(OWNERS):
        assert await bus.forget(owner, dry_run=True) == expected
        assert await bus.forget(owner) == expected
        assert await bus.forget(owner) == Forgotten()
        assert await bus.reports.get(f"bld_{number}") is None
        assert await bus.find_results([Identity(owner, f"msg_{n}") for n in (1, 2)]) == [None, None]
        left = OWNERS[number + 1 :]
        stored = await bus.find_results([Identity(other, "msg_2") for other in left])
        assert all(stored)
        assert await dead(bus) == [request(other) for other in left]


async def test_there_may_be_nothing_to_forget(place: Place) -> None:
    """An empty bus is no error."""
    assert await (await place.open("one")).forget("o") == Forgotten()


async def test_more_is_looked_at_than_fits_one_step(place: Place) -> None:
    """Every second of many answers and build reports is the owner's, and each is found."""
    bus = await place.open("one")
    for number in range(700):
        await bus.reports.put({f"bld_{number}": report("op"[number % 2])}, HOUR)
    for number in range(45):
        await answered(bus, "op"[number % 2], f"msg_{number}")
        await bury(bus, request("op"[number % 2], f"msg_{number}"))

    assert await bus.forget("o") == Forgotten(results=23, reports=350, dead_letters=23)
    assert await bus.forget("p") == Forgotten(results=22, reports=350, dead_letters=22)


async def test_entries_on_the_streams_are_counted_and_stay(place: Place) -> None:
    """They are still to be answered or recorded; when they are settled and trimmed, none is."""
    bus = await place.open("one")
    row = json.dumps({"id": "a", "owner_key": "o", "role": "AI", "content": "x"}).encode()
    for topic in ROW_TOPICS:
        await bus.append(topic, row)
    for number in range(45):
        await bus.submit(request("op"[number % 2], f"msg_{number}"))

    assert await bus.forget("o") == Forgotten(waiting=26)

    deliveries = await bus.requests.receive(100, wait=1)
    assert len(deliveries) == 45
    await bus.requests.ack(deliveries)
    await bus.results.ack(await bus.results.receive(10, wait=1))
    await asyncio.gather(bus.requests.trim(), bus.results.trim())
    assert await bus.forget("o") == Forgotten()


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{}", b'{"owner_key": 5}', b'{"a": '])
async def test_letters_that_name_nobody_stay(place: Place, payload: bytes) -> None:
    """And are counted, for a person to look at."""
    bus = await place.open("one")
    await bury(bus, payload)

    assert await bus.forget("o") == Forgotten(unreadable=1)
    assert await dead(bus) == [payload]


@pytest.mark.parametrize(
    "content",
    [
        {"owner_key": "o"},
        {"owner_key": "p", "history": [{"owner_key": "p"}, 1, {"owner_key": "o"}]},
    ],
)
async def test_letters_that_hold_anything_of_an_owner_go(
    place: Place, content: dict[str, object]
) -> None:
    """Also where the envelope is another's or nobody's: such requests end here."""
    bus = await place.open("one")
    await bury(bus, json.dumps({"content": content}).encode())

    assert await bus.forget("o") == Forgotten(dead_letters=1)


async def test_what_says_nothing_of_its_owner_ends_by_itself(place: Place) -> None:
    """An answer too large to be stored leaves a fingerprint, which is not found."""
    bus = await place.open("one", result_max_bytes=1)
    identity = await answered(bus, "o")
    (stored,) = await bus.find_results([identity])
    assert stored is not None
    assert stored.response is None

    assert await bus.forget("o") == Forgotten()


async def test_other_deployments_are_left_alone(place: Place) -> None:
    """A prefix is meant literally, whatever patterns it looks like."""
    plain = await place.open("one")
    odd = place.prefix + "[ab]*?\\."
    for prefix in (odd, f"{place.prefix}a-x\\.", f"{place.prefix}b\\x\\."):
        place.prefix = prefix
        bus = await place.open("other")
        await answered(bus, "o")
    place.prefix = odd
    bus = await place.open("one")

    assert await bus.forget("o") == Forgotten(results=1)
    assert await bus.forget("o") == Forgotten()
    assert await plain.forget("o") == Forgotten()


async def test_foreign_values_are_no_hindrance(place: Place) -> None:
    """Whatever something else put under keys of ours is nobody's."""
    bus = await place.open("one")
    if isinstance(place, RedisPlace):
        name = f"{place.prefix}context.build.report."
        await place.client.rpush(f"{name}list", "x")
        await place.client.set(f"{name}text", "x")
        await place.client.set(f"{name}number", zlib.compress(b"1"))
        await place.client.set(f"{name}text2", zlib.compress(b'{"request": "o"}'))
    elif isinstance(place, MemoryPlace):
        place.hub.reports.kept.keep("text", b"x", HOUR)
    await bus.reports.put({"bld_1": report("o")}, HOUR)

    assert await bus.forget("o") == Forgotten(reports=1)


async def test_an_owner_who_is_forgotten_may_ask_again(place: Place) -> None:
    """The same id is a new request then, and what comes later is found by the next look."""
    bus = await place.open("one")
    first = await answered(bus, "o")
    found = await bus.forget("o")
    again = await answered(bus, "o")

    assert first == again
    assert await bus.forget("o") == found == replace(Forgotten(), results=1)
