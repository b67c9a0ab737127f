"""Keys of another type, and streams that have run out of ids: they cost nothing but themselves."""

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.adapters.redis import shards as redis_shards
from service.adapters.redis.scripts import LAST_ID
from service.adapters.redis.servers import read_entries
from service.adapters.redis.shards import Shard, shards_key
from service.app import make_worker
from service.errors import BusError, ConfigError
from service.ports.bus import AnswerOutcome, Bus, Enqueued
from service.wire.protocol import Topics
from tests.integration.bus_places import (
    ASKED,
    SHORT,
    RedisPlace,
    answer,
    payloads,
    received,
    taken_over,
    until,
)
from tests.integration.test_shards import of_each_shard, request_of
from tests.integration.test_worker import Crew, asking, open_crew

pytestmark = pytest.mark.integration

everywhere = pytest.mark.parametrize(
    "place", ["redis", "valkey", "shards", "cluster"], indirect=True
)
divided = pytest.mark.parametrize("place", ["shards", "cluster"], indirect=True)
on_a_server = pytest.mark.parametrize("place", ["redis"], indirect=True)

UNUSABLE = "bus.key_unusable"


async def take_the_place(place: RedisPlace, key: str) -> None:
    """Put a text in the place of what is at a key."""
    await place.client.set(key, "a text")


async def exhaust(place: RedisPlace, stream: str, payload: bytes = b"last") -> None:
    """Add the entry after which a stream takes no more."""
    await place.client.xadd(stream, {"data": payload}, id=LAST_ID)


async def received_in_all(bus: Bus, count: int) -> list[bytes]:
    """Read the expected number of entries."""
    read: list[bytes] = []

    async def attempt() -> bool:
        read.extend(payloads(await received(bus)))
        return len(read) >= count

    await until(attempt)
    return sorted(read)


# --- the number of shards --------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("running", [False, True])
async def test_the_key_of_shards_may_be_wrong(
    place: RedisPlace, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers start, read all streams that have entries, and name the key; a command mends it."""
    monkeypatch.setattr(redis_shards, "CHECK_SECONDS", 0)
    key, owners = shards_key(place.prefix), of_each_shard(place.shards)
    bus = await place.open("one") if running else None
    for owner in owners:
        await (await place.open("client")).submit(request_of(owner))
    await place.client.delete(key)
    await place.client.rpush(key, "2")
    with capture_logs() as logs:
        bus = bus or await place.open("one")
        assert await received_in_all(bus, place.shards) == sorted(map(request_of, owners))
        assert await bus.enqueue([b"{}"]) == [Enqueued.ENQUEUED]
    assert {(each["event"], each["key"]) for each in logs if each["log_level"] == "error"} == {
        ("bus.shards_unreadable", key)
    }
    with pytest.raises(ConfigError, match="ctxb bus shards N"):
        await bus.request_shards.count()

    await bus.request_shards.set_count(place.shards)

    assert await bus.request_shards.count() == place.shards


# --- the channel -----------------------------------------------------------------------------


@everywhere
async def test_a_heard_key_may_be_wrong(place: RedisPlace) -> None:
    """Its payload is enqueued by each worker, and the others of the batch once."""
    one, two = await place.open("one"), await place.open("two")
    heard = Shard(place.prefix, place.requests.removeprefix(place.prefix)).heard(b"{}")
    await take_the_place(place, heard)

    with capture_logs() as logs:
        assert await one.enqueue([b"{}", b"2"]) == [Enqueued.ENQUEUED] * 2
        assert await two.enqueue([b"{}", b"2"]) == [Enqueued.ENQUEUED, Enqueued.KNOWN]

    assert sorted(payloads(await received(one))) == [b"2", b"{}", b"{}"]
    assert [(each["event"], each["key"]) for each in logs] == [(UNUSABLE, heard)] * 2
    assert await place.client.get(heard) == b"a text"


@divided
@pytest.mark.parametrize("wrong", ["type", "id"])
async def test_a_stream_that_cannot_be_used_costs_the_channel_no_other(
    place: RedisPlace, wrong: str
) -> None:
    """One of the workers reports it, for each time that it is sent; requests of others go on."""
    one, two = await place.open("one"), await place.open("two")
    first, second = map(request_of, of_each_shard(place.shards)[:2])
    await (take_the_place if wrong == "type" else exhaust)(place, place.requests)

    for _ in range(2):
        assert await one.enqueue([first, second]) == [Enqueued.UNUSABLE, Enqueued.ENQUEUED]
        assert await two.enqueue([first, second]) == [Enqueued.KNOWN, Enqueued.KNOWN]
    with pytest.raises(BusError, match=rf"append to {place.requests}"):
        await one.submit(first)


@on_a_server
async def test_who_cannot_be_enqueued_gets_an_error(place: RedisPlace) -> None:
    """It may be sent again; while no stream can be read the worker isn't ready, and then is."""
    await take_the_place(place, place.requests)
    async with open_crew(place) as crew:
        worker = make_worker(await place.open("worker"), crew.builder)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await until(lambda: state_is(worker.pulse.state, "held up"))
        response = await crew.client.send(asking(id="msg_1"), via="channel")
        await place.client.delete(place.requests)
        await until(lambda: state_is(worker.pulse.state, "taking requests"))
        again = await crew.client.send(asking(id="msg_1"), via="channel")
        stop.set()
        await running

    error = response.content.error if response.content.status == "error" else None
    assert error is not None
    assert (error.code, error.retryable) == ("internal", True)
    assert again.content.status == "success"


async def state_is(state: str, expected: str) -> bool:
    """Compare two states, for `until`."""
    return state == expected


# --- streams ---------------------------------------------------------------------------------


@divided
@pytest.mark.parametrize("running", [False, True])
async def test_a_stream_of_another_type_costs_no_other(place: RedisPlace, running: bool) -> None:
    """The others are read, claimed, counted and trimmed; it joins them when it is a stream."""
    client = await place.open("client")
    _, second = map(request_of, of_each_shard(place.shards)[:2])
    bus = await place.open("one", lease_seconds=SHORT)
    if running:
        await received(bus)
    await take_the_place(place, place.requests)
    with capture_logs() as logs:
        await client.submit(second)
        assert await received_in_all(bus, 1) == [second]
        (delivery,) = await taken_over(bus)
        await bus.requests.renew([delivery])
        assert (await bus.requests.depth()).pending == 1
        await bus.requests.ack([delivery])
        await bus.requests.trim()
        await received(bus)
    assert [each["key"] for each in logs if each["event"] == UNUSABLE] == [place.requests]

    await place.client.delete(place.requests)
    await client.submit(b"{}")

    assert await received_in_all(bus, 1) == [b"{}"]
    await bus.requests.leave()


@divided
async def test_a_mended_stream_is_read_while_others_are_crowded(place: RedisPlace) -> None:
    """Owners of its shard don't wait until nothing waits elsewhere."""
    bus = await place.open("one")
    first, second = of_each_shard(place.shards)[:2]
    await take_the_place(place, place.requests)
    for _ in range(60):
        await bus.submit(request_of(second))
    await received(bus, 1)
    await bus.requests.receive_fairly(0, heavy=9)
    await place.client.delete(place.requests)
    await bus.submit(request_of(first))

    read = [payloads(await bus.requests.receive_fairly(1, heavy=1)) for _ in range(4)]

    assert [request_of(first)] in read
    assert bus.requests.crowded


@on_a_server
async def test_taking_turns_names_what_is_wrong(place: RedisPlace) -> None:
    """As long as no stream can be read."""
    bus = await place.open("one")
    await take_the_place(place, place.requests)
    with pytest.raises(BusError, match=rf"{place.requests}: WRONGTYPE"):
        await bus.requests.receive_fairly(1, heavy=1)

    await place.client.delete(place.requests)
    await bus.submit(b"{}")

    assert payloads(await bus.requests.receive_fairly(1, heavy=1)) == [b"{}"]


@on_a_server
async def test_a_stream_may_be_replaced_while_its_readers_wait(place: RedisPlace) -> None:
    """An answer goes out once, though its request is gone; then all get the error."""
    bus = await place.open("one")
    await bus.submit(b"1")
    (delivery,) = await received(bus)
    waiting = asyncio.create_task(bus.requests.receive(1, wait=60))
    await until(lambda: blocked(place))
    await take_the_place(place, place.requests)
    await asyncio.wait([waiting])
    with pytest.raises(BusError, match=rf"{place.requests}: WRONGTYPE"):
        await waiting or await received(bus)

    reply_to = f"{place.prefix}reply"
    answered = answer(delivery, reply_to=reply_to, reply_kind="list")
    (receipt,) = await bus.finish([answered])

    assert receipt.outcome is AnswerOutcome.SENT
    assert len(await place.replies(reply_to, "list")) == 1


async def blocked(place: RedisPlace) -> bool:
    """Return whether a reader of the request stream waits."""
    clients: list[dict[str, Any]] = await place.client.client_list()
    return any(each["cmd"].startswith("xreadgroup") for each in clients)


@everywhere
async def test_a_results_stream_of_another_type_costs_not_the_other(place: RedisPlace) -> None:
    """Its rows are read; workers go on."""
    await take_the_place(place, place.prefix + Topics.LLM_RESULTS)
    bus = await place.open("one")
    await bus.append(Topics.TOOLS_RESULTS, b"1")

    assert payloads(await bus.results.receive(10, wait=0)) == [b"1"]
    await bus.results.trim()


@everywhere
async def test_the_key_of_an_answer_may_be_wrong(place: RedisPlace) -> None:
    """No answer is found there, and the others are."""
    bus = await place.open("one")
    shard = Shard(place.prefix, place.requests.removeprefix(place.prefix))
    await place.client.rpush(shard.result(ASKED), "a list")

    assert await bus.find_results([ASKED]) == [None]


# --- the dead letter -------------------------------------------------------------------------


@on_a_server
@pytest.mark.parametrize("wrong", ["type", "id"])
async def test_the_dead_letter_may_be_unusable(place: RedisPlace, wrong: str) -> None:
    """What belongs there stays where it is until it can be copied; the others go on."""
    dead = place.prefix + Topics.CONTEXT_BUILD_DEAD
    await (take_the_place if wrong == "type" else exhaust)(place, dead)
    async with open_crew(place, bus={"max_deliveries": 1}) as crew:
        lost = await place.open("lost", lease_seconds=0)
        await crew.bus.submit(given_up := json.dumps(asking(id="dead", **replying(place))).encode())
        for _ in range(2):
            await received(lost) or await taken_over(lost)
        await crew.bus.submit(b"no request")
        for row in (b"no row", json.dumps(A_ROW).encode()):
            await crew.bus.append(Topics.LLM_RESULTS, row)
        await crew.hire()

        await crew.client.build(asking(id="other"), via="stream")
        await until(lambda: crew.builder.history.rows("o", ["row"]))
        await until(lambda: place.replies(REPLY.format(place.prefix), "list"))
        if wrong == "type":
            await place.client.delete(dead)
        else:
            assert await crew.bus.renumber() == [Topics.CONTEXT_BUILD_DEAD]
        await until(lambda: copied(crew, {given_up, b"no request", b"no row"}))
        replies = await place.replies(REPLY.format(place.prefix), "list")

    (reply,) = map(json.loads, replies)
    assert reply["content"]["error"]["code"] == "internal"


REPLY = "context.reply.{}"
A_ROW = {"id": "row", "owner_key": "o", "role": "AI", "content": "hello"}


def replying(place: RedisPlace) -> dict[str, Any]:
    """Return the metadata of a request that is answered in a list."""
    return {"metadata": {"reply_to": REPLY.format(place.prefix), "reply_kind": "list"}}


async def copied(crew: Crew, expected: set[bytes]) -> bool:
    """Return whether each of these is in the dead letter once, and nothing is pending."""
    entries = [each["data"] for each in await crew.stream(Topics.CONTEXT_BUILD_DEAD)]
    ours = sorted(each for each in entries if each in expected)
    depths = [await inbox.depth() for inbox in (crew.bus.requests, crew.bus.results)]
    return ours == sorted(expected) and not any(each.pending for each in depths)


# --- streams that have run out of ids --------------------------------------------------------


@everywhere
async def test_a_stream_goes_on_under_its_name(place: RedisPlace) -> None:
    """What is unread is read, what is pending stays so with its reader, for each of the groups."""
    one, two = await place.open("one"), await place.open("two", lease_seconds=0)
    await place.client.xgroup_create(place.requests, "others", id="0", mkstream=True)
    for number in range(3):
        await one.submit(b"%d" % number)
    held, acked = (await received(one, 2))[:2]
    await one.requests.ack([acked])
    await two.requests.claim(1)
    await exhaust(place, place.requests)
    before = await place.client.xpending_range(place.requests, "context-builders", "-", "+", 9)

    assert place.requests.endswith(tuple(await one.renumber()))
    assert await one.renumber() == []

    now = await place.client.xpending_range(place.requests, "context-builders", "-", "+", 9)
    kept = ("message_id", "consumer", "times_delivered")
    assert [[each[name] for name in kept] for each in now] == [
        [each[name] for name in kept] for each in before
    ]
    await one.submit(b"3")
    assert await received_in_all(one, 3) == [b"2", b"3", b"last"]
    (taken,) = await two.requests.claim(1)
    assert (taken.token, taken.payload) == (held.token, b"0")
    reply: Any = await place.client.xreadgroup("others", "x", {place.requests: ">"})
    others = [fields[b"data"] for _, (_, fields) in read_entries(reply)]
    assert others == [b"0", b"1", b"2", b"last", b"3"]


@everywhere
async def test_readers_of_the_last_id_read_on(place: RedisPlace) -> None:
    """It is answered under its old id, is known under its new one, and new entries follow it."""
    bus = await place.open("one", lease_seconds=0)
    await exhaust(place, place.requests)
    with capture_logs() as logs:
        (delivery,) = await received(bus)
        await bus.requests.trim()
        await bus.requests.trim()
    assert [(each["stream"], each["fix"]) for each in logs if each["log_level"] == "error"] == [
        (place.requests, "ctxb bus renumber")
    ]

    await bus.renumber()
    await bus.submit(b"next")

    assert payloads(await received(bus)) == [b"next"]
    (receipt,) = await bus.finish([answer(delivery)])
    assert receipt.outcome is AnswerOutcome.SENT
    again = next(each for each in await taken_over(bus) if each.payload == b"last")
    assert await bus.find_results([ASKED]) != [None]
    (receipt,) = await bus.finish([answer(again, mode="again")])
    assert receipt.outcome is AnswerOutcome.SENT
    await bus.requests.trim()


@everywhere
async def test_deleting_the_last_entry_is_no_cure_but_no_obstacle(place: RedisPlace) -> None:
    """A stream that was emptied goes on too, with its group or without."""
    bus = await place.open("one")
    dead = place.prefix + Topics.CONTEXT_BUILD_DEAD
    for stream in (place.requests, dead):
        await exhaust(place, stream)
    assert payloads(await received(bus)) == [b"last"]
    for stream in (place.requests, dead):
        await place.client.xdel(stream, LAST_ID)

    assert len(await bus.renumber()) == 2

    await bus.submit(b"next")
    await bus.append(Topics.CONTEXT_BUILD_DEAD, b"next")
    assert payloads(await received(bus)) == [b"next"]


@on_a_server
async def test_what_was_read_stays_read_without_the_last_entry(place: RedisPlace) -> None:
    """Of entries with a time in the future, read ones aren't new again, and unread ones are."""
    bus = await place.open("one", lease_seconds=0)
    await place.client.xgroup_create(place.requests, "others", id="0", mkstream=True)
    for number, entry in enumerate(("9" * 13 + "-1", "9" * 13 + "-2", "9" * 14, LAST_ID)):
        await place.client.xadd(place.requests, {"data": b"%d" % number}, id=entry)
    deliveries = await received(bus, 4)
    await bus.requests.ack([deliveries[0], *deliveries[2:]])
    await place.client.xreadgroup("others", "x", {place.requests: ">"}, count=2)
    await place.client.xdel(place.requests, LAST_ID)

    await bus.renumber()
    await bus.submit(b"next")

    assert payloads(await received(bus, 10)) == [b"next"]
    assert b"1" in payloads(await taken_over(bus))
    reply: Any = await place.client.xreadgroup("others", "x", {place.requests: ">"})
    assert [fields[b"data"] for _, (_, fields) in read_entries(reply)] == [b"2", b"next"]


@on_a_server
async def test_all_entries_stay_in_their_order(place: RedisPlace) -> None:
    """Over several pages, with times of the future at the end."""
    bus = await place.open("one")
    numbers = [b"%d" % number for number in range(59)]
    for number in numbers[:-3]:
        await bus.submit(number)
    for number, entry in zip(numbers[-3:], ("9" * 17, "9" * 18, LAST_ID), strict=True):
        await place.client.xadd(place.requests, {"data": number}, id=entry)

    await bus.renumber()

    assert [each["data"] for each in await place.stream(place.requests)] == numbers
    assert payloads(await received(bus, 100)) == numbers
