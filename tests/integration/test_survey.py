"""What those see who look after a bus and a store, on real servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.redis.survey import RedisSurvey, open_redis_survey
from service.adapters.sql.database_state import read_size
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.store import open_sql_store
from service.config.endpoints import StoreSettings
from service.ports.status import ChannelMessage
from service.wire.protocol import Topics
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
    assert [each.name for each in seen.results] == [Topics.LLM_RESULTS, Topics.TOOLS_RESULTS]


@on_servers
async def test_servers_tell_of_themselves(place: RedisPlace) -> None:
    """Product, version and what matters of their settings; their clock is this machine's here."""
    async with looking(place) as survey:
        servers = await survey.servers()
        assert abs(await survey.clock_offset_seconds()) < 1
        assert await survey.subscriber_limit() is not None
        assert await survey.missing_permissions() == []

    assert len(servers) == (3 if "+cluster" in place.url else 1)
    asked: dict[str, Any] = await place.client.info("server")
    told = asked if "redis_version" in asked else next(iter(asked.values()))
    version = told.get("valkey_version") or told["redis_version"]
    assert {each.version for each in servers} == {version}
    product = "valkey" if "valkey_version" in told else "redis"
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
    async with open_sql_store(sql.url, Words(), clock) as stores:
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
