from dataclasses import replace

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import MemoryBus, open_memory_bus
from service.adapters.memory.hub import MemoryHub
from service.errors import ConfigError
from service.ports.bus import Answer, AnswerOutcome, Delivery, Enqueued, Identity, RequestStream
from service.wire.protocol import Topics

OPTIONS = BusOptions(consumer="one", lease_seconds=5, result_ttl_seconds=60)


class HandClock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Read the clock."""
        return self.seconds


def answered(delivery: Delivery) -> Answer:
    """Answer a delivery on a list."""
    return Answer(
        delivery=delivery,
        identity=Identity("a", "1"),
        fingerprint="f",
        response=b"{}",
        reply_to="replies",
        reply_kind="list",
    )


async def test_lease_runs_by_the_hubs_clock() -> None:
    """A lease runs out after exactly its seconds, and again after a renewal."""
    clock = HandClock()
    hub = MemoryHub(clock)
    one, two = MemoryBus(hub, OPTIONS), MemoryBus(hub, replace(OPTIONS, consumer="two"))
    await one.submit(b"1")
    held = await one.requests.receive(1, wait=0)
    clock.seconds += 4
    await one.requests.renew(held)
    clock.seconds += 4
    assert await two.requests.claim(1) == []

    clock.seconds += 1

    (claimed,) = await two.requests.claim(1)
    assert claimed.attempt == 2
    await one.requests.renew(held)
    clock.seconds += 5
    assert [delivery.attempt for delivery in await one.requests.claim(1)] == [3]


async def test_answers_are_forgotten_in_time() -> None:
    """Answers and replies are kept for their seconds and not longer."""
    clock = HandClock()
    hub = MemoryHub(clock)
    bus = MemoryBus(hub, OPTIONS)
    await bus.submit(b"1")
    (delivery,) = await bus.requests.receive(1, wait=0)
    await bus.finish([answered(delivery)])

    clock.seconds += 59
    assert await bus.find_results([Identity("a", "1")]) != [None]
    clock.seconds += 2
    assert await bus.find_results([Identity("a", "1")]) == [None]
    assert hub.replies["replies"].payloads == [b"{}"]
    clock.seconds += 300
    assert "replies" not in hub.replies


async def test_copies_count_as_one_for_a_second() -> None:
    """A second after the first copy, a subscriber that missed it gets a retry."""
    clock = HandClock()
    hub = MemoryHub(clock)
    one, two, three, four = (
        MemoryBus(hub, replace(OPTIONS, consumer=name)) for name in ("one", "two", "three", "four")
    )
    await one.enqueue([b"1"])
    clock.seconds += 0.6
    assert await two.enqueue([b"1"]) == [Enqueued.KNOWN]
    clock.seconds += 0.3
    assert await three.enqueue([b"1"]) == [Enqueued.KNOWN]
    clock.seconds += 0.2
    assert await four.enqueue([b"1"]) == [Enqueued.ENQUEUED]
    assert await one.enqueue([b"1"]) == [Enqueued.KNOWN]


async def test_forgotten_values_make_room() -> None:
    """What is over does not stay in memory."""
    clock = HandClock()
    hub = MemoryHub(clock)
    for number in range(100):
        hub.heard.keep(("", b"%d" % number), set(), 1)
        clock.seconds += 0.5

    assert len(hub.heard) <= 3


async def test_time_passes_with_the_clock() -> None:
    """The hub's time of day moves with its clock, and stamps its entries."""
    clock = HandClock()
    bus = MemoryBus(MemoryHub(clock), OPTIONS)
    before = bus.now()
    clock.seconds += 60
    await bus.submit(b"1")
    (delivery,) = await bus.requests.receive(1, wait=0)

    assert (bus.now() - before).total_seconds() == 60
    assert abs((bus.now() - delivery.received_at).total_seconds()) < 0.01


async def test_entry_without_data_is_handed_out() -> None:
    """An entry without a payload reaches the worker, empty."""
    hub = MemoryHub()
    bus = MemoryBus(hub, OPTIONS)
    hub.add(Topics.CONTEXT_BUILD_REQUEST, {"payload": b"1"})

    assert [delivery.payload for delivery in await bus.requests.receive(1, wait=0)] == [b""]


async def test_dead_letter_is_bounded() -> None:
    """The dead letter forgets the oldest."""
    hub = MemoryHub()
    bus = MemoryBus(hub, replace(OPTIONS, dead_max_length=2))
    for number in range(3):
        await bus.submit(b"%d" % number)
    for delivery in await bus.requests.receive(3, wait=0):
        await bus.requests.dead_letter(delivery, "bad")

    dead = hub.streams[Topics.CONTEXT_BUILD_DEAD].entries.values()
    assert [fields["data"] for fields in dead] == [b"1", b"2"]


async def test_buses_without_a_hub_are_apart() -> None:
    """Two buses share nothing unless they share a hub."""
    async with open_memory_bus() as one, open_memory_bus() as two:
        await one.submit(b"1")
        assert await two.requests.receive(1, wait=0) == []
        (delivery,) = await one.requests.receive(1, wait=0)
        (receipt,) = await one.finish([answered(delivery)])
        assert receipt.outcome == AnswerOutcome.SENT
        assert (one.dropped, one.resubscribed) == (0, 0)


async def test_channel_is_left_behind() -> None:
    """A subscriber that stops listening is no longer counted."""
    hub = MemoryHub()
    bus = MemoryBus(hub, OPTIONS)
    async with bus.subscribe("events"), bus.subscribe_requests():
        assert await bus.publish("events", b"1") == 1
    assert await bus.publish("events", b"1") == 0
    assert hub._subscribers == {}


async def test_a_bus_in_memory_has_one_stream() -> None:
    """It is shown like those of a server, and can't be divided."""
    async with open_memory_bus() as bus:
        await bus.submit(b"1")
        await bus.submit(b"2")
        await bus.requests.receive(1, wait=0)

        assert await bus.request_shards.count() == 1
        stream = RequestStream(name="context.build.request", entries=2, pending=1)
        assert await bus.request_shards.streams() == [stream]
        await bus.request_shards.set_count(1)
        with pytest.raises(ConfigError, match="memory"):
            await bus.request_shards.set_count(2)
