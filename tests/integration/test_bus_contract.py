"""What every bus promises about entries, leases and channels, on every bus there is."""

import asyncio
from datetime import timedelta

import pytest

from service.ports.bus import Delivery
from service.wire.protocol import Topics
from tests.integration.bus_places import SHORT, Place, payloads, received, taken_over, until

pytestmark = pytest.mark.integration


# --- reading and settling --------------------------------------------------------------------


async def test_entry_is_received_once(place: Place) -> None:
    """An entry goes to one of the workers, with its stream, its time and the first attempt."""
    one, two = await place.open("one"), await place.open("two")
    token = await one.submit(b'{"a":1}')

    (delivery,) = await received(one)

    assert await received(two) == []
    assert (delivery.payload, delivery.attempt, delivery.token) == (b'{"a":1}', 1, token)
    assert place.prefix + delivery.source == place.requests
    assert abs(one.now() - delivery.received_at) < timedelta(minutes=1)


async def test_entries_wait_for_the_first_worker(place: Place) -> None:
    """What was written before any worker existed is received."""
    bus = await place.open("one")
    for payload in (b"1", b"2", b"3"):
        await bus.submit(payload)

    assert payloads(await received(bus)) == [b"1", b"2", b"3"]


async def test_no_more_than_free_slots(place: Place) -> None:
    """A worker is never given more than it requested."""
    bus = await place.open("one")
    for payload in (b"1", b"2", b"3"):
        await bus.submit(payload)

    assert payloads(await received(bus, 2)) == [b"1", b"2"]
    assert await received(bus, 0) == []
    assert payloads(await received(bus, 2)) == [b"3"]


async def test_waiting_reader_is_woken(place: Place) -> None:
    """A reader that waits gets an entry as soon as there is one."""
    bus = await place.open("one")
    await received(bus)
    reader = asyncio.create_task(bus.requests.receive(1, wait=30))
    await asyncio.wait([reader], timeout=SHORT)
    assert not reader.done()
    await bus.append(Topics.LLM_RESULTS, b"of no interest")
    await bus.submit(b"1")

    async with asyncio.timeout(60):
        assert payloads(await reader) == [b"1"]


async def test_empty_wait_ends(place: Place) -> None:
    """A reader that waits for nothing comes back with nothing."""
    bus = await place.open("one")

    assert await bus.requests.receive(1, wait=SHORT) == []


async def test_acked_is_settled(place: Place) -> None:
    """What was acked is never seen again."""
    bus = await place.open("one", lease_seconds=0)
    await bus.submit(b"1")
    await bus.requests.ack(await received(bus))

    assert await bus.requests.claim(10) == []
    await bus.requests.trim()
    assert await place.stream(place.requests) == []


# --- leases ----------------------------------------------------------------------------------


async def test_lease_protects(place: Place) -> None:
    """An entry in a worker's hands cannot be claimed while its lease runs."""
    one, two = await place.open("one"), await place.open("two")
    await one.submit(b"1")
    await received(one)

    assert await two.requests.claim(10) == []


async def test_claim_raises_the_attempt(place: Place) -> None:
    """An entry whose lease has run out goes to the worker that claims it, once more delivered."""
    one = await place.open("one", lease_seconds=SHORT)
    two = await place.open("two", lease_seconds=SHORT)
    token = await one.submit(b"1")
    await received(one)

    (second,) = await taken_over(two)
    (third,) = await taken_over(one)

    assert (second.token, second.payload, second.attempt) == (token, b"1", 2)
    assert third.attempt == 3


async def test_claim_is_bounded(place: Place) -> None:
    """No more is claimed than there are free slots."""
    bus = await place.open("one", lease_seconds=0)
    for payload in (b"1", b"2", b"3"):
        await bus.submit(payload)
    await received(bus)

    assert payloads(await bus.requests.claim(2)) == [b"1", b"2"]
    assert await bus.requests.claim(0) == []


async def test_renewed_lease_holds(place: Place) -> None:
    """A delivery that is renewed stays; the one next to it goes. Renewing is no attempt."""
    one = await place.open("one", lease_seconds=1.5)
    two = await place.open("two", lease_seconds=1.5)
    await one.submit(b"kept")
    await one.submit(b"lost")
    kept, _ = await received(one)

    async def renew_and_claim() -> list[Delivery]:
        await one.requests.renew([kept])
        return await two.requests.claim(10)

    assert payloads(await until(renew_and_claim)) == [b"lost"]
    await one.requests.release([kept])
    (again,) = await taken_over(two)
    assert again.attempt == 2


async def test_renew_leaves_others_alone(place: Place) -> None:
    """A worker cannot win back by renewing or releasing what another has claimed."""
    one = await place.open("one", lease_seconds=SHORT)
    two = await place.open("two", lease_seconds=60)
    await one.submit(b"1")
    lost = await received(one)
    await one.requests.release(lost)
    await one.requests.claim(10)
    await one.requests.release(lost)
    two_short = await place.open("two", lease_seconds=SHORT)
    await taken_over(two_short)

    await one.requests.renew(lost)
    await one.requests.release(lost)

    assert await two.requests.claim(10) == []


async def test_renew_forgets_the_settled(place: Place) -> None:
    """Renewing a settled delivery does not bring it back."""
    bus = await place.open("one", lease_seconds=0)
    await bus.submit(b"1")
    found = await received(bus)
    await bus.requests.ack(found)

    await bus.requests.renew(found)

    assert await bus.requests.claim(10) == []


async def test_released_can_be_claimed_at_once(place: Place) -> None:
    """A released delivery is free for others, long before its lease would have run out."""
    one, two = await place.open("one", lease_seconds=60), await place.open("two", lease_seconds=60)
    await one.submit(b"1")

    await one.requests.release(await received(one))

    assert payloads(await two.requests.claim(10)) == [b"1"]


# --- dead letter, trim, leave ----------------------------------------------------------------


async def test_dead_letter_keeps_payload_and_reason(place: Place) -> None:
    """A dead letter carries the payload and why it is there; the entry is settled."""
    bus = await place.open("one", lease_seconds=0)
    token = await bus.submit(b"not json")
    (delivery,) = await received(bus)

    await bus.requests.dead_letter(delivery, "unreadable")
    await bus.requests.dead_letter(delivery, "unreadable")

    (dead,) = await place.stream(place.prefix + Topics.CONTEXT_BUILD_DEAD)
    assert dead.pop("at").startswith(b"20")
    assert dead == {
        "data": b"not json",
        "reason": b"unreadable",
        "source": place.requests.removeprefix(place.prefix).encode(),
        "entry": token.encode(),
        "attempts": b"1",
    }
    assert await bus.requests.claim(10) == []


async def test_trim_keeps_what_is_needed(place: Place) -> None:
    """Trimming deletes what every group has settled, and nothing pending or unread in any."""
    bus = await place.open("one")
    other = await place.open("one", group="auditors")
    stream = place.requests
    for number in range(5):
        await bus.submit(b"%d" % number)
    await bus.requests.trim()
    assert len(await place.stream(stream)) == 5, "no group yet"

    mine = await received(bus, 4)
    theirs = await received(other, 2)
    await bus.requests.ack([mine[0], mine[1], mine[3]])
    await bus.requests.trim()
    assert len(await place.stream(stream)) == 5, "pending with the auditors"
    await other.requests.ack(theirs)
    await bus.requests.trim()
    assert [entry["data"] for entry in await place.stream(stream)] == [b"2", b"3", b"4"]
    await other.requests.ack(await received(other))
    await bus.requests.trim()
    assert [entry["data"] for entry in await place.stream(stream)] == [b"2", b"3", b"4"]
    await bus.requests.ack([mine[2]])
    await bus.requests.trim()
    assert [entry["data"] for entry in await place.stream(stream)] == [b"4"]
    assert payloads(await received(bus)) == [b"4"]


async def test_leaving_loses_nothing(place: Place) -> None:
    """A worker that leaves while it holds an entry leaves the entry to the others."""
    one = await place.open("one", lease_seconds=SHORT)
    two = await place.open("two", lease_seconds=SHORT)
    await one.submit(b"1")
    await received(one)

    await one.requests.leave()

    assert payloads(await taken_over(two)) == [b"1"]
    await one.requests.leave()


# --- results, channels, the clock ------------------------------------------------------------


async def test_results_say_where_they_come_from(place: Place) -> None:
    """The recorder reads both streams of results, no more than it has slots for."""
    bus = await place.open("one", lease_seconds=0)
    for number in range(3):
        await bus.append(Topics.LLM_RESULTS, b"ai %d" % number)
    await bus.append(Topics.TOOLS_RESULTS, b"tool")
    found: list[Delivery] = []

    async with asyncio.timeout(60):
        while len(found) < 4:
            some = await bus.results.receive(1, wait=SHORT)
            assert len(some) <= 1
            found += some

    seen = {(delivery.source, delivery.payload) for delivery in found}
    assert seen == {
        *((Topics.LLM_RESULTS, b"ai %d" % number) for number in range(3)),
        (Topics.TOOLS_RESULTS, b"tool"),
    }
    assert len(await bus.results.claim(10)) == 4
    await bus.results.renew(found)
    await bus.results.ack(found)
    await bus.results.trim()
    await bus.results.leave()
    assert await bus.results.claim(10) == []
    assert await place.stream(place.prefix + Topics.LLM_RESULTS) == []


async def test_results_have_a_group_of_their_own(place: Place) -> None:
    """Reading requests takes nothing from the results, nor the reverse."""
    bus = await place.open("one")
    await bus.submit(b"request")
    await bus.append(Topics.LLM_RESULTS, b"ai")

    assert payloads(await bus.results.receive(10, wait=0)) == [b"ai"]
    assert payloads(await received(bus)) == [b"request"]


async def test_events_are_heard(place: Place) -> None:
    """An event is published under its topic with the prefix."""
    bus = await place.open("one")

    async with bus.subscribe(place.prefix + Topics.CONTEXT_PRUNED) as events:
        assert await bus.publish(Topics.CONTEXT_PRUNED, b"{}") == 1
        async with asyncio.timeout(60):
            assert await anext(events) == b"{}"


async def test_bus_answers(place: Place) -> None:
    """A bus that runs answers, and its clock is a clock."""
    bus = await place.open("one")

    await bus.ping()

    assert bus.now().tzinfo is not None
