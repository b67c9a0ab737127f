"""What only a real server can show: foreign entries, both protocols, lost scripts."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import redis.asyncio as redis

from service.adapters import arrivals
from service.adapters.bus_options import BusOptions
from service.adapters.redis.bus import RedisBus, open_redis_bus
from service.adapters.redis.shards import Shard
from service.errors import OverloadedError
from service.ports.bus import AnswerOutcome, Enqueued
from service.wire.protocol import Topics
from tests.integration.bus_places import ASKED, SHORT, answer, holds, payloads, received, until
from tests.integration.conftest import StartServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(server_url: str) -> AsyncIterator[redis.Redis]:
    """Give a client to do with the shared server what producers do."""
    async with redis.Redis.from_url(server_url) as opened:
        yield opened


@pytest.fixture
async def bus(server_url: str, prefix: str) -> AsyncIterator[RedisBus]:
    """Give a bus on the shared server, with a short lease."""
    async with open_redis_bus(server_url, BusOptions(prefix=prefix, lease_seconds=SHORT)) as opened:
        yield opened


# --- entries as producers write them ---------------------------------------------------------


async def test_entry_without_data_is_handed_out(
    bus: RedisBus, client: redis.Redis, prefix: str
) -> None:
    """An entry without a payload reaches the worker, empty, so that it can be dead-lettered."""
    await client.xadd(prefix + Topics.CONTEXT_BUILD_REQUEST, {"payload": b"1"})

    assert payloads(await received(bus)) == [b""]
    assert payloads(await until(lambda: bus.requests.claim(10))) == [b""]


@pytest.mark.parametrize("entry", ["1-1", "99999999999999999-5"])
async def test_made_up_ids_do_no_harm(
    bus: RedisBus, client: redis.Redis, prefix: str, entry: str
) -> None:
    """An entry whose id is no time of day is received like any other."""
    await client.xadd(prefix + Topics.CONTEXT_BUILD_REQUEST, {"data": b"1"}, id=entry)

    (delivery,) = await received(bus)

    assert (delivery.token, delivery.payload) == (entry, b"1")
    await bus.requests.ack([delivery])
    await bus.requests.trim()
    assert await client.xlen(prefix + Topics.CONTEXT_BUILD_REQUEST) == 0


async def test_trim_knows_ids_of_any_size(bus: RedisBus, client: redis.Redis, prefix: str) -> None:
    """Ids are compared as 64-bit numbers, so no pending entry falls to a rounding error."""
    stream = prefix + Topics.CONTEXT_BUILD_REQUEST
    ids = ["9-9", "9-10", "10-9007199254740993", "10-9007199254740994", "10-18446744073709551614"]
    for entry in ids:
        await client.xadd(stream, {"data": entry}, id=entry)
    deliveries = await received(bus)

    await bus.requests.ack([deliveries[0], deliveries[1], deliveries[2], deliveries[4]])
    await bus.requests.trim()

    left = await client.xrange(stream)
    assert [entry for entry, _ in left or ()] == [
        b"10-9007199254740994",
        b"10-18446744073709551614",
    ]


async def test_trim_heeds_a_group_set_back(bus: RedisBus, client: redis.Redis, prefix: str) -> None:
    """A group that an operator has set back to the start still finds its entries."""
    stream = prefix + Topics.CONTEXT_BUILD_REQUEST
    await bus.submit(b"1")
    await bus.submit(b"2")
    first, _ = await received(bus)
    await bus.requests.ack([first])
    await client.xgroup_setid(stream, "context-builders", "0")

    await bus.requests.trim()

    assert await client.xlen(stream) == 2


async def test_deleted_entries_are_given_up(
    bus: RedisBus, client: redis.Redis, prefix: str
) -> None:
    """An entry that was deleted while pending is settled and does not come back as nothing."""
    stream = prefix + Topics.CONTEXT_BUILD_REQUEST
    await bus.submit(b"1")
    await bus.submit(b"2")
    first, _ = await received(bus)
    await client.xdel(stream, first.token)

    assert payloads(await until(lambda: bus.requests.claim(10))) == [b"2"]
    assert (await client.xpending(stream, "context-builders"))["pending"] == 1


async def test_leaving_removes_the_consumer(
    bus: RedisBus, client: redis.Redis, prefix: str
) -> None:
    """A worker leaves no trace in the group, once it holds nothing."""
    stream = prefix + Topics.CONTEXT_BUILD_REQUEST
    await bus.submit(b"1")
    deliveries = await received(bus)

    await bus.requests.leave()
    assert len(await client.xinfo_consumers(stream, "context-builders")) == 1
    await bus.requests.ack(deliveries)
    await bus.requests.leave()
    assert await client.xinfo_consumers(stream, "context-builders") == []


# --- stored answers --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"])
async def test_foreign_results_count_as_none(
    bus: RedisBus, client: redis.Redis, prefix: str, value: bytes
) -> None:
    """A value under a result's key that is no result counts as missing."""
    await client.set(Shard(prefix).result(ASKED), value)

    assert await bus.find_results([ASKED]) == [None]


async def test_keys_expire(bus: RedisBus, client: redis.Redis, prefix: str) -> None:
    """Answers, replies and what was heard go by themselves."""
    await bus.enqueue([b"1"])
    (delivery,) = await received(bus)
    await bus.finish([answer(delivery, reply_to=f"{prefix}replies", reply_kind="list")])

    lives = {key: await client.pttl(key) async for key in client.scan_iter(f"{prefix}*")}
    stream = (prefix + Topics.CONTEXT_BUILD_REQUEST).encode()
    assert lives.pop(stream) == -1
    assert len(lives) == 3
    assert all(life > 0 for life in lives.values())


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["first", "unstored", "again"])
async def test_full_server_settles_nothing(server: StartServer, mode: str) -> None:
    """A server without room is one for all answers: none of them is given up for it."""
    running = server()
    async with open_redis_bus(running.url, BusOptions(lease_seconds=SHORT)) as bus:
        await bus.submit(b"1")
        (delivery,) = await received(bus)
        reply = answer(delivery, reply_to="replies", reply_kind="list", mode=mode)
        with running.client() as client:
            client.config_set("maxmemory", 1)

        (refused,) = await bus.finish([reply])

        assert refused.outcome == AnswerOutcome.FAILED
        assert isinstance(refused.error, OverloadedError)
        await bus.ping()
        with running.client() as client:
            client.config_set("maxmemory", 0)
        assert [each.outcome for each in await bus.finish([reply])] == [AnswerOutcome.SENT]
        with running.client() as client:
            assert client.llen("replies") == 1


async def test_missing_rights_cost_the_reply(server: StartServer) -> None:
    """A channel that the server's rules forbid is refused, its answer stored and settled."""
    running = server()
    rights = {"keys": ["*"], "channels": ["context.*"], "categories": ["+@all"]}
    with running.client() as client:
        client.acl_setuser("worker", enabled=True, nopass=True, **rights)
    url = running.url.replace("://", "://worker:x@")
    async with open_redis_bus(url, BusOptions(lease_seconds=SHORT)) as bus:
        await bus.submit(b"1")
        (delivery,) = await received(bus)

        (receipt,) = await bus.finish([answer(delivery, reply_to="other")])

        assert (receipt.outcome, receipt.receivers) == (AnswerOutcome.SENT, None)
        assert await bus.find_results([ASKED]) != [None]
        assert await bus.requests.claim(1) == []


# --- protocols and scripts -------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
async def test_both_protocols(server_url: str, prefix: str, protocol: int) -> None:
    """The bus works alike with either protocol, whatever shape its replies have there."""
    url = f"{server_url}?protocol={protocol}&decode_responses=True&socket_timeout=20"
    options = BusOptions(prefix=prefix, lease_seconds=SHORT)
    async with open_redis_bus(url, options) as bus, bus.subscribe_requests() as heard:
        await bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")
        async with asyncio.timeout(60):
            assert await anext(heard) == [b"1"]
        assert await bus.requests.receive(1, wait=0.3) == []
        assert await bus.enqueue([b"1"]) == [Enqueued.ENQUEUED]
        assert payloads(await received(bus)) == [b"1"]
        (claimed,) = await until(lambda: bus.requests.claim(1))
        await bus.append(Topics.LLM_RESULTS, b"ai")
        assert payloads(await bus.results.receive(4, wait=1)) == [b"ai"]
        async with bus.subscribe(f"{prefix}replies") as replies:
            (receipt,) = await bus.finish([answer(claimed, reply_to=f"{prefix}replies")])
            assert (receipt.outcome, receipt.receivers) == (AnswerOutcome.SENT, 1)
            async with asyncio.timeout(60):
                assert await anext(replies) == b'{"n":1}'
        await bus.requests.trim()
        assert await bus.requests.receive(1, wait=0) == []


async def test_forgotten_scripts_are_sent_again(server: StartServer) -> None:
    """A server that has lost its scripts gets them again, and the batch keeps its order."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        await bus.enqueue([b"0"])
        with running.client() as client:
            client.script_flush()

        await bus.enqueue([b"1", b"2", b"3"])

        assert payloads(await received(bus)) == [b"0", b"1", b"2", b"3"]


# --- the channel -----------------------------------------------------------------------------


async def test_slow_listener_loses_and_counts(
    bus: RedisBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that does not take what it hears drops the rest, and knows how much."""
    async with bus.subscribe_requests():
        monkeypatch.setattr(arrivals, "MAX_WAITING", 3)
        for _ in range(10):
            await bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")

        await until(lambda: holds(bus.dropped == 7))


async def test_clock_is_the_servers(bus: RedisBus) -> None:
    """The bus returns the server's time, which stamps its entries."""
    await bus.ping()
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    assert abs(bus.now() - delivery.received_at) < timedelta(minutes=1)
