"""What those see who look after a bus and a store, on real servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.redis.scripts import LAST_ID
from service.adapters.redis.shards import Shard, shards_key
from service.adapters.redis.survey import RedisSurvey, open_redis_survey
from service.adapters.sql.databases import read_size
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.store import open_sql_store
from service.config.endpoints import StoreSettings
from service.ports.status import ChannelMessage, UnusableKey
from service.wire.protocol import ROW_TOPICS, Topics
from tests.integration.bus_places import RedisPlace, received
from tests.stores import Clock, Sql, Words
from tests.support import row

pytestmark = pytest.mark.integration

#: The buses that others than their workers can look at.
on_servers = pytest.mark.parametrize(
    "place", ["redis", "valkey", "shards", "cluster"], indirect=True
)


@asynccontextmanager
async def looking(place: RedisPlace) -> AsyncIterator[RedisSurvey]:
    """Look at the bus of a test, as a command does."""
    options = BusOptions(prefix=place.prefix)
    async with open_redis_survey(place.url, options, [f"{place.prefix}reply."]) as survey:
        yield survey


@on_servers
async def test_a_bus_is_seen_as_it_is(place: RedisPlace) -> None:
    """What waits, what is in work and for how long, who reads, and what nobody could answer."""
    bus = await place.open("one")
    async with looking(place) as survey:
        empty = await survey.state()
        assert [(each.entries, each.lag, each.pending) for each in empty.requests] == [
            (0, 0, 0)
        ] * place.shards
        assert (empty.workers, empty.listening, empty.dead_letters) == ([], 0, 0)

        for number in range(4):
            await bus.submit(b'{"owner_key": "0xAB2", "n": %d}' % number)
        first, _ = await received(bus, 2)
        await bus.requests.dead_letter(first, "not JSON")
        async with bus.subscribe_requests():
            seen = await survey.state()

    (stream,) = (each for each in seen.requests if each.entries)
    assert place.prefix + stream.name == place.requests
    assert (seen.shards, stream.grouped, stream.pending) == (place.shards, True, 1)
    assert stream.lag == stream.entries - 2
    assert stream.added == 4
    assert stream.oldest_pending_seconds >= 0
    assert [(each.name, each.pending) for each in seen.workers] == [("one", 1)]
    assert seen.listening == 1
    assert seen.dead_letters == 1
    assert [each.name for each in seen.results] == [*ROW_TOPICS]


@on_servers
async def test_what_waits_for_its_turn_is_not_in_work(place: RedisPlace) -> None:
    """A lane is no worker, and the age of what is in it isn't that of work."""
    bus = await place.open("one")
    for number in range(12):
        await bus.submit(b'{"owner_key": "ana", "n": %d}' % number)
    await bus.requests.receive_fairly(0, heavy=99)
    (held,) = await bus.requests.receive_fairly(1, heavy=99)
    async with looking(place) as survey:
        at_work = await survey.state()
        await bus.requests.ack([held])
        idle = await survey.state()

    (stream,) = (each for each in at_work.requests if each.entries)
    (left,) = (each for each in idle.requests if each.entries)
    assert (stream.lag, stream.pending, left.lag, left.pending) == (11, 1, 11, 0)
    assert stream.oldest_pending_seconds > 0
    assert left.oldest_pending_seconds == 0
    assert [(each.name, each.pending) for each in at_work.workers] == [("one", 1)]


@on_servers
async def test_servers_describe_themselves(place: RedisPlace) -> None:
    """Product, version and what matters of their settings; their clock is this machine's here."""
    async with looking(place) as survey:
        servers = await survey.servers()
        assert abs(await survey.clock_offset_seconds()) < 1
        assert await survey.subscriber_limit() is not None
        assert await survey.missing_permissions() == []

    assert len(servers) == (3 if "+cluster" in place.url else 1)
    asked: dict[str, Any] = await place.client.info("server")
    reported = asked if "redis_version" in asked else next(iter(asked.values()))
    version = reported.get("valkey_version") or reported["redis_version"]
    assert {each.version for each in servers} == {version}
    product = "valkey" if "valkey_version" in reported else "redis"
    assert {each.product for each in servers} == {product}
    assert all(each.primary for each in servers)
    assert {each.eviction for each in servers} == {"noeviction"}


@on_servers
async def test_answers_and_events_are_overheard(place: RedisPlace) -> None:
    """Those on the channel of all answers, those on channels of their senders, and events."""
    bus = await place.open("one")
    async with looking(place) as survey, survey.monitor() as heard:
        for channel in ("context.build.response", "reply.svc", "context.pruned"):
            await bus.publish_to(place.prefix + channel, channel.encode())
        await bus.publish_to("elsewhere", b"not ours")
        found = {await anext(heard) for _ in range(3)}

    assert found == {
        ChannelMessage(topic=Topics.CONTEXT_BUILD_RESPONSE, payload=b"context.build.response"),
        ChannelMessage(topic="reply", payload=b"reply.svc"),
        ChannelMessage(topic=Topics.CONTEXT_PRUNED, payload=b"context.pruned"),
    }


async def test_a_store_is_seen_as_it_is(sql: Sql, clock: Clock) -> None:
    """How many rows of how many owners, its bytes, and what there is of connections."""
    settings = StoreSettings(url=sql.url)
    if sql.url.startswith("sqlite"):
        assert await read_size(f"{sql.url}.none", settings) is None
    await upgrade(sql.url)
    async with open_sql_store(sql.url, Words, clock) as stores:
        for owner in ("ana", "bo"):
            await stores.history.append(owner, [row(1, "HUMAN", "hello"), row(2, "AI", "hi")])

    seen = await read_size(sql.url, settings)

    assert seen is not None
    assert seen.bytes > 0
    if seen.exact:
        assert (seen.rows, seen.owners, seen.summaries) == (4, 2, 0)
        assert (seen.connections, seen.connected, seen.ahead_seconds) == (None, None, None)
    else:
        assert seen.connections is not None
        assert seen.connected is not None
        assert 0 < seen.connected <= seen.connections
        assert abs(seen.ahead_seconds or 0) < 1


@on_servers
async def test_keys_that_cannot_be_used_are_found(place: RedisPlace) -> None:
    """Each with its type and the type that it should have; the rest is seen all the same."""
    bus = await place.open("one")
    await bus.submit(b"{}")
    shard = Shard(place.prefix, place.requests.removeprefix(place.prefix))
    dead, heard = f"{place.prefix}context.build.dead", shard.heard(b"1")
    kinds = {shards_key(place.prefix): "string", dead: "stream", heard: "set"}
    async with looking(place) as survey:
        assert await survey.unusable_keys() == []
        for key in kinds:
            await place.client.delete(key)
            await place.client.lpush(key, "a text")
        await place.client.xadd(f"{place.prefix}llm.results", {"data": "1"}, id=LAST_ID)
        await bus.enqueue([b"2"])

        found = await survey.unusable_keys()
        found += [each async for each in survey.unusable_values()]
        state = await survey.state()
        assert await survey.servers()

    exhausted = UnusableKey(key=f"{place.prefix}llm.results", expected="stream", found=None)
    wrong = [
        UnusableKey(key=key, expected=expected, found="list") for key, expected in kinds.items()
    ]
    assert sorted(found, key=str) == sorted([exhausted, *wrong], key=str)
    assert sum(each.entries for each in state.requests) == 2
    assert (state.shards, state.dead_letters) == (1, 0)


@on_servers
async def test_a_text_may_be_no_number_of_shards(place: RedisPlace) -> None:
    """It has the type that it should have, and is found."""
    await place.client.set(shards_key(place.prefix), "many")
    async with looking(place) as survey:
        (found,) = await survey.unusable_keys()

    assert (found.found, found.expected) == ("string", "number from 1 to 64")
