"""Requests spread over several streams by owner, on one server and on a cluster."""

import asyncio
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.adapters.bus_options import BusOptions
from service.adapters.redis import shards as redis_shards
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.shards import shard_topic, shards_key
from service.errors import ConfigError
from service.ports.bus import AnswerOutcome, Delivery, Enqueued, Identity, RequestStream
from service.wire.protocol import Topics
from service.wire.response import StoredResult
from tests.integration.bus_places import RedisPlace, answer, payloads, received, until
from tests.integration.conftest import StartServer
from tests.integration.test_worker import asking, open_crew

pytestmark = pytest.mark.integration

divided = pytest.mark.parametrize("place", ["shards", "cluster"], indirect=True)
on_a_server = pytest.mark.parametrize("place", ["redis"], indirect=True)


@pytest.fixture
def alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the number of shards be looked up each time."""
    monkeypatch.setattr(redis_shards, "CHECK_SECONDS", 0)


def of_each_shard(count: int) -> list[str]:
    """Return an owner of each shard, in their order."""
    owners: dict[int, str] = {}
    for number in range(1000):
        owners.setdefault(zlib.crc32(f"owner-{number}".encode()) % count, f"owner-{number}")
    return [owners[number] for number in range(count)]


def request_of(owner: str, name: str = "msg_1") -> bytes:
    """Return a request, as far as a bus looks at it."""
    return json.dumps({"id": name, "owner_key": owner}).encode()


# --- where requests go -----------------------------------------------------------------------


@divided
async def test_owners_have_their_shard(place: RedisPlace) -> None:
    """By the stream and by the channel, a request goes where the wire contract says."""
    bus = await place.open("one")
    for owner in of_each_shard(place.shards):
        await bus.submit(request_of(owner))
        assert await bus.enqueue([request_of(owner, "msg_2")]) == [Enqueued.ENQUEUED]

    for number, owner in enumerate(of_each_shard(place.shards)):
        stream = await place.stream(f"{place.prefix}context.build.request.{{{number}}}")
        names = [json.loads(entry["data"]) for entry in stream]
        assert [(each["owner_key"], each["id"]) for each in names] == [
            (owner, "msg_1"),
            (owner, "msg_2"),
        ]


@divided
async def test_what_names_no_owner_goes_to_the_first(place: RedisPlace) -> None:
    """So that it is dead-lettered like any other, and one copy of it enters, from any worker."""
    one, two = await place.open("one"), await place.open("two")
    bodies = [b"no json", b"[]", b'{"owner_key": 1}', b"x" * 60_000]

    assert await one.enqueue(bodies) == [Enqueued.ENQUEUED] * 4
    assert await two.enqueue(bodies) == [Enqueued.KNOWN] * 4

    assert [entry["data"] for entry in await place.stream(place.requests)] == bodies


@divided
async def test_the_backlog_is_that_of_all_shards(place: RedisPlace) -> None:
    """Each takes its share of what may wait."""
    bus = await place.open("one", max_backlog=place.shards)
    owners = of_each_shard(place.shards)

    first = await bus.enqueue([request_of(owner) for owner in owners])
    second = await bus.enqueue([request_of(owner, "msg_2") for owner in owners])

    assert set(first) == {Enqueued.ENQUEUED}
    assert set(second) == {Enqueued.REFUSED}


# --- reading ---------------------------------------------------------------------------------


@divided
async def test_shards_are_read_in_turn(place: RedisPlace) -> None:
    """A full shard keeps no other one waiting, and nobody gets more than requested."""
    bus = await place.open("one")
    owners = of_each_shard(place.shards)
    for number in range(8):
        await bus.submit(request_of(owners[0], f"full-{number}"))
    for owner in owners[1:]:
        await bus.submit(request_of(owner))

    found: list[Delivery] = []
    for _ in range(2 * place.shards):
        some = await bus.requests.receive(1, wait=0)
        assert len(some) <= 1
        found += some

    assert {each.source for each in found} == {
        shard_topic(number, place.shards) for number in range(place.shards)
    }
    found += await bus.requests.receive(100, wait=0)
    assert len(found) == 8 + place.shards - 1, "one read brings all that there are slots for"


@divided
@pytest.mark.parametrize("slots", [1, 10])
async def test_every_shard_wakes_a_reader(place: RedisPlace, slots: int) -> None:
    """Also one that has fewer slots than there are shards."""
    bus = await place.open("one")
    await received(bus)
    for owner in of_each_shard(place.shards):
        reader = asyncio.create_task(bus.requests.receive(slots, wait=30))
        await asyncio.wait([reader], timeout=0.02)
        await bus.submit(request_of(owner))
        async with asyncio.timeout(60):
            assert payloads(await reader) == [request_of(owner)]
    assert (await bus.requests.depth()).pending == place.shards


@divided
async def test_how_much_waits_is_reported_for_all_shards(place: RedisPlace) -> None:
    """Together, and for those who set their number, by stream."""
    bus = await place.open("one")
    await received(bus)
    for owner in of_each_shard(place.shards):
        await bus.submit(request_of(owner))
    await bus.requests.receive(1, wait=0)

    depth = await bus.requests.depth()
    assert (depth.lag, depth.pending) == (place.shards - 1, 1)
    streams = await bus.request_shards.streams()
    assert [each.entries for each in streams] == [1] * place.shards
    assert sum(each.pending for each in streams) == 1


@divided
async def test_dead_letters_go_back_to_their_shard(place: RedisPlace) -> None:
    """Whichever it was."""
    bus = await place.open("one")
    owner = of_each_shard(place.shards)[-1]
    await bus.submit(request_of(owner))
    (delivery,) = await received(bus)
    await bus.requests.dead_letter(delivery, "why")
    (letter,) = [each async for each in bus.dead_letters.scan()]

    assert await bus.dead_letters.retry([letter.id]) == 1

    (again,) = await received(bus)
    assert (again.source, again.payload) == (delivery.source, request_of(owner))


# --- when their number changes ---------------------------------------------------------------


@pytest.mark.parametrize("place", ["redis", "cluster"], indirect=True)
async def test_change_at_run_time_loses_nothing(place: RedisPlace, alert: None) -> None:
    """While their number goes up and down, each request is answered once, and no stream is left."""
    async with open_crew(place) as crew:
        await crew.hire()
        sent: list[asyncio.Task[Any]] = []
        for count in (1, 4, 2, 3):
            await crew.bus.request_shards.set_count(count)
            for number in range(12):
                asked = asking(id=f"msg-{count}-{number}", owner_key=f"owner-{number}")
                sent.append(asyncio.create_task(crew.client.send(asked)))
        responses = await asyncio.gather(*sent)

        streams = await until(lambda: settled(crew.bus))
        assert {each.name for each in streams} == {shard_topic(n, 3) for n in range(3)}
    ids = Counter(response.metadata.request_id for response in responses)
    assert len(ids) == 48
    assert {response.content.status for response in responses} == {"success"}


async def settled(bus: Any) -> Sequence[RequestStream]:
    """Return the streams in use once nothing is left in any."""
    await bus.requests.trim()
    streams: list[RequestStream] = await bus.request_shards.streams()
    return [] if any(each.entries or each.pending for each in streams) else streams


@pytest.mark.parametrize("place", ["redis", "cluster"], indirect=True)
async def test_retry_after_a_change_gets_the_stored_answer(place: RedisPlace, alert: None) -> None:
    """It comes by another shard, and is found to be answered, also after it was built."""
    bus = await place.open("one")
    await place.divide(1)
    owner = of_each_shard(4)[3]
    identity = Identity(owner, "msg_1")
    await bus.submit(request_of(owner))
    (first,) = await received(bus)
    await place.divide(4)
    await bus.submit(request_of(owner))
    (retry,) = await received(bus)
    assert (first.source, retry.source) == (shard_topic(0, 1), shard_topic(3, 4))

    outcomes = [
        (await bus.finish([answer(each, identity=identity, fingerprint="f")]))[0].outcome
        for each in (first, retry)
    ]

    assert outcomes == [AnswerOutcome.SENT, AnswerOutcome.ANSWERED]
    stored = StoredResult(fingerprint="f", response={"n": 1})
    assert await bus.find_results([identity]) == [stored]
    new = await place.open("new")
    await new.requests.claim(1)
    assert await new.find_results([identity]) == [stored], "a worker that starts then finds it too"


async def test_flush_strands_nobody(server: StartServer, alert: None) -> None:
    """After a flush there is one shard; what clients write who knew more is found and answered."""
    running = server()
    async with open_redis_bus(running.url) as client, open_redis_bus(running.url) as worker:
        await client.request_shards.set_count(3)
        await received(worker)
        with running.client() as admin:
            admin.flushall()
            for topic in (*(shard_topic(number, 3) for number in range(3)), shard_topic(0, 1)):
                admin.xadd(topic, {"data": topic})
            admin.xadd(shard_topic(60, 64), {"data": "from before this worker was there"})

        found: list[Delivery] = []
        async with asyncio.timeout(60):
            while len(found) < 5:
                found += await worker.requests.receive(10, wait=0.1)
        assert await client.request_shards.count() == 1
        await client.submit(b"1")
        assert payloads(await received(worker)) == [b"1"]
        await worker.requests.ack(found)


@on_a_server
async def test_unreadable_number_changes_nothing(place: RedisPlace, alert: None) -> None:
    """It is said once in the log; the workers go on with what they knew."""
    bus = await place.open("one")
    await place.divide(3)
    await bus.submit(request_of("a"))
    for wrong in ("0", "65", "three", "-1", "1000000000000000000000000"):
        await place.client.set(shards_key(place.prefix), wrong)
        with capture_logs() as logged:
            await bus.submit(request_of("a"))
            await bus.submit(request_of("a"))
        assert [line["event"] for line in logged] == ["bus.shards_unreadable"]
        with pytest.raises(ConfigError, match="no number from 1 to 64"):
            await bus.request_shards.count()

    shard = shard_topic(zlib.crc32(b"a") % 3, 3)
    assert len(await place.stream(place.prefix + shard)) == 11


@on_a_server
async def test_number_is_looked_up_now_and_then(place: RedisPlace) -> None:
    """Not with each request: one server of one shard costs no more than it did."""
    bus = await place.open("one")
    await bus.submit(b"1")
    before = (await place.client.info("commandstats")).get("cmdstat_get", {}).get("calls", 0)
    for number in range(50):
        await bus.submit(b"%d" % number)
    after = (await place.client.info("commandstats"))["cmdstat_get"]["calls"]

    assert after - before <= 5, "the server is shared; the requests were ten times as many"


async def test_number_that_cannot_be_is_refused(server_url: str, prefix: str) -> None:
    """By those who set it as well."""
    async with open_redis_bus(server_url, BusOptions(prefix=prefix)) as bus:
        for wrong in (0, 65):
            with pytest.raises(ConfigError, match="no number from 1 to 64"):
                await bus.request_shards.set_count(wrong)
        assert await bus.request_shards.streams() == [
            RequestStream(name=Topics.CONTEXT_BUILD_REQUEST, entries=0, pending=0)
        ]
