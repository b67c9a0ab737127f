"""How owners take turns when requests wait, on every bus there is."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.redis.shards import shard_of
from service.aio import LARGE_TEXT
from service.ports.bus import Bus, Delivery, lane_of
from tests.integration.bus_places import SHORT, Place, RedisPlace, received, taken_over

pytestmark = pytest.mark.integration

#: Owners of one shard: the first one sends many requests, the other one few.
MANY, FEW = "d", "db"


async def submit(bus: Bus, *owners: str) -> None:
    """Add a request of each of these owners, numbered by its place among them."""
    for number, owner in enumerate(owners):
        await bus.submit(json.dumps({"owner_key": owner, "id": str(number)}).encode())


def numbers(deliveries: Sequence[Delivery]) -> list[int]:
    """Return the numbers of requests."""
    return [int(json.loads(delivery.payload)["id"]) for delivery in deliveries]


async def in_turns(bus: Bus, slots: int = 100, heavy: int = 99) -> list[Delivery]:
    """Sort what is new, and receive entries of the stream in which some wait."""
    await bus.requests.receive_fairly(0, heavy=99)
    return await bus.requests.receive_fairly(slots, heavy=heavy)


async def test_owners_with_few_requests_come_first(place: Place) -> None:
    """Then those of the others, in their order, however they are spread over workers."""
    one, two = await place.open("one"), await place.open("two")
    await received(one)
    await submit(one, *[MANY] * 30, FEW, MANY, FEW)

    first = await in_turns(one, slots=3)
    second = await in_turns(two)

    assert numbers(first) == [30, 32, 0]
    assert numbers(second) == [*range(1, 30), 31]
    assert not two.requests.crowded
    assert (await in_turns(two)) == []


async def test_owners_with_many_requests_leave_slots_free(place: Place) -> None:
    """And each entry says how many of its owner are behind it, shared by the workers."""
    one, two = await place.open("one"), await place.open("two")
    await received(one)
    await submit(one, *[MANY] * 30, FEW)

    first = await in_turns(one, slots=5, heavy=1)
    second = await in_turns(two, slots=5, heavy=1)

    assert numbers(first) == [30, 0]
    assert [delivery.behind for delivery in first] == [None, 29]
    assert numbers(second) == [1]
    assert [delivery.behind for delivery in second] == [14]


async def test_owners_with_few_do_not_take_all_slots_for_ever(place: Place) -> None:
    """At times, an owner with many comes first."""
    bus = await place.open("one")
    await received(bus)
    await submit(bus, *[MANY] * 30, *[FEW] * 8)
    await in_turns(bus, slots=0)
    taken = [await bus.requests.receive_fairly(1, heavy=1) for _ in range(8)]

    assert sum(numbers(turns)[0] < 30 for turns in taken) == 1


async def test_owners_with_many_requests_take_turns(place: Place) -> None:
    """Nobody waits for all requests of another."""
    bus = await place.open("one")
    await received(bus)
    await submit(bus, *[MANY] * 30, *[FEW] * 15)

    assert sorted(numbers(await in_turns(bus, slots=6))) == [0, 1, 2, 30, 31, 32]


async def test_what_waits_belongs_to_no_worker(place: Place) -> None:
    """No lease of it runs out, and another worker gets it with its first attempt."""
    one = await place.open("one", lease_seconds=SHORT)
    two = await place.open("two", lease_seconds=SHORT)
    await received(one)
    await submit(one, *[MANY] * 30)
    (held,) = await in_turns(one, slots=1)

    (claimed,) = await taken_over(two)
    assert (claimed.token, claimed.attempt) == (held.token, 2)
    assert two.requests.crowded
    rest = await in_turns(two)
    assert numbers(rest) == [*range(1, 30)]
    assert {delivery.attempt for delivery in rest} == {1}


async def test_what_waits_counts_as_unread(place: Place) -> None:
    """And isn't trimmed."""
    bus = await place.open("one")
    await received(bus)
    await submit(bus, *[MANY] * 30)
    (held,) = await in_turns(bus, slots=1)
    depth = await bus.requests.depth()
    await bus.requests.ack([held])
    await bus.requests.trim()

    assert (depth.lag, depth.pending) == (29, 1)
    assert depth.oldest_pending_seconds > 0
    assert (await bus.requests.depth()).oldest_pending_seconds == 0
    assert len(await place.stream(place.requests)) == 29


async def test_what_was_read_before_is_not_given_again(place: Place) -> None:
    """Turns are for what no worker has."""
    one, two = await place.open("one"), await place.open("two")
    await submit(one, *[MANY] * 12)
    held = await received(one, 3)

    assert numbers(held) == [0, 1, 2]
    assert numbers(await in_turns(two)) == [*range(3, 12)]


@pytest.mark.parametrize("count", [2, 3, 8])
async def test_no_lane_starves(place: Place, count: int) -> None:
    """While others' requests could fill all slots, owners with many share each eighth one."""
    bus = await place.open("one")
    await received(bus)
    owners = [owners_of(shard, place.shards, count + 1) for shard in range(place.shards)]
    many = [owner for of_shard in owners for owner in of_shard[1:]]
    for owner in many:
        await submit(bus, *[owner] * 12)
    await submit(bus, *(of_shard[0] for of_shard in owners))
    await bus.requests.receive_fairly(0, heavy=99)
    turns = Counter[str]()
    for _ in range(8 * 2 * len(many)):
        (delivery,) = await bus.requests.receive_fairly(1, heavy=1)
        await bus.requests.ack([delivery])
        turns[owner := json.loads(delivery.payload)["owner_key"]] += 1
        if owner not in many:
            await submit(bus, owner)

    assert {turns[owner] for owner in many} == {2}


async def test_owners_share_lanes(place: Place) -> None:
    """Two in one lane have one turn, and a third in another lane has its own."""
    bus = await place.open("one")
    await received(bus)
    one_of_them, other = owners_of(0, place.shards, 2)
    mate = next(
        owner
        for owner in map(str, range(1000, 100_000))
        if lane_of(owner) == lane_of(one_of_them) and shard_of(owner, place.shards) == 0
    )
    await submit(bus, *[one_of_them, mate] * 9, *[other] * 9)

    assert sorted(numbers(await in_turns(bus, slots=6))) == [0, 1, 2, 18, 19, 20]


#: Requests by which an owner with many pretends to be others, or another to be it.
DISGUISES = {
    "escapes": r'{{"owner_key": "\u{0:04x}", "id": "{1}"}}',
    "metadata": r'{{"metadata": {{"owner_key": "{1}"}}, "owner_key": "{2}", "id": "{1}"}}',
    "twice": r'{{"owner_key": "{1}", "id": "{1}", "owner_key": "{2}"}}',
}


@pytest.mark.parametrize("disguise", DISGUISES)
async def test_the_owner_is_the_one_that_is_answered(place: Place, disguise: str) -> None:
    """However a request writes it, and with any other content."""
    bus = await place.open("one")
    await received(bus)
    for number in range(30):
        request = DISGUISES[disguise].format(ord(MANY), number, MANY)
        await bus.submit(request.encode())
    await submit(bus, FEW)

    first, *others = await in_turns(bus, slots=20)

    assert json.loads(first.payload)["owner_key"] == FEW
    assert [each.behind for each in others] == [*range(29, 10, -1)]


async def test_no_owner_is_framed(place: Place) -> None:
    """What others contain next to their owner is nothing that an owner has sent."""
    bus = await place.open("one")
    await received(bus)
    for owner in owners_of(0, place.shards, 30):
        framing = {"metadata": {"owner_key": FEW}, "owner_key": owner, "id": "0"}
        await bus.submit(json.dumps(framing).encode())
    await submit(bus, FEW)

    assert {each.behind for each in await in_turns(bus)} == {None}


async def test_large_payloads_and_no_requests_take_turns_too(place: Place) -> None:
    """Large ones by the first owner that they name, and all that name none as one owner."""
    bus = await place.open("one")
    await received(bus)
    for number in range(9):
        request = {"owner_key": MANY, "id": str(number), "text": "x" * LARGE_TEXT}
        await bus.submit(json.dumps(request).encode())
        await bus.submit(b'"owner_key": "%d"' % number)
        await bus.submit(b'["\\ud800"]')
    await submit(bus, FEW)
    first, *others = await in_turns(bus, slots=7)

    assert json.loads(first.payload)["owner_key"] == FEW
    assert sum(len(each.payload) > LARGE_TEXT for each in others) == 3


async def test_a_few_large_requests_count_as_many(place: Place) -> None:
    """Those of others come first, as one that is large takes as long as several."""
    bus = await place.open("one")
    await received(bus)
    request = {"owner_key": MANY, "id": "0", "text": "x" * 4 * LARGE_TEXT}
    for _ in range(2):
        await bus.submit(json.dumps(request).encode())
    await submit(bus, FEW)

    assert [json.loads(each.payload)["owner_key"] for each in await in_turns(bus)] == [
        FEW,
        MANY,
        MANY,
    ]


async def test_what_waits_has_no_delivery(place: Place) -> None:
    """So that a worker of an earlier version, which claims it, counts no attempt for it."""
    if not isinstance(place, RedisPlace):
        return
    bus = await place.open("one")
    await received(bus)
    await submit(bus, *[MANY] * 12, FEW)
    await bus.requests.receive_fairly(0, heavy=0)

    group = BusOptions(consumer="").group
    held = await place.client.xpending_range(place.requests, group, "-", "+", 99)

    assert [each["times_delivered"] for each in held] == [0] * 13


def owners_of(shard: int, shards: int, count: int) -> list[str]:
    """Return owners of a shard, no two of which share a lane."""
    owners = filter(lambda owner: shard_of(owner, shards) == shard, map(str, range(1000)))
    return [*{lane_of(owner): owner for owner in owners}.values()][:count]
