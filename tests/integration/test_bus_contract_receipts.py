"""What every bus promises of each answer in a batch, whatever becomes of the others."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import redis.asyncio as redis

from service.adapters.bus_options import BusOptions
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.shards import Shard
from service.errors import ForbiddenError, OverloadedError
from service.ports.bus import Answer, AnswerOutcome, Bus, Identity, Receipt
from service.wire.protocol import Topics
from tests.integration.bus_places import Place, RedisPlace, answer, received, taken_over
from tests.integration.conftest import StartServer
from tests.integration.relay import relaying
from tests.integration.test_forbidden_replies import restrict

pytestmark = pytest.mark.integration

#: The places of what a test answers; of one owner, so of one stream.
ASKED = [Identity("d", name) for name in "abc"]


async def answers_of(bus: Bus, **changes: Any) -> list[Answer]:
    """Return answers to a request each, of which this worker has the deliveries."""
    for identity in ASKED:
        await bus.submit(identity.id.encode())
    return [
        answer(each, identity=identity, response=b'{"n":"%b"}' % identity.id.encode(), **changes)
        for each, identity in zip(await received(bus), ASKED, strict=True)
    ]


def outcomes(receipts: Sequence[Receipt]) -> list[AnswerOutcome]:
    """Return what became of each answer."""
    return [receipt.outcome for receipt in receipts]


@pytest.fixture(params=[2, 3])
async def fenced(
    request: pytest.FixtureRequest, server_url: str, prefix: str
) -> AsyncIterator[RedisPlace]:
    """Give a server on which the buses have those rights that the test gives them."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(redis.Redis.from_url(server_url))
        await restrict(client, prefix, f"{prefix}*")
        stack.push_async_callback(client.acl_deluser, prefix)
        url = server_url.replace("://", f"://{prefix}:any@")
        yield RedisPlace(stack, f"{url}?protocol={request.param}", prefix, client)


# --- an error of one ------------------------------------------------------------------------


async def test_forbidden_answer_costs_no_other(fenced: RedisPlace) -> None:
    """One whose result may not be stored fails alone, and can be finished when it may."""
    bus = await fenced.open("one", lease_seconds=0)
    answers = await answers_of(bus, reply_to=f"context.reply.{fenced.prefix}")
    dead = fenced.prefix + Topics.CONTEXT_BUILD_DEAD
    allowed = [Shard(fenced.prefix).result(ASKED[place]) for place in (0, 2)]
    await restrict(fenced.client, fenced.prefix, fenced.requests, dead, *allowed)

    receipts = await bus.finish(answers)

    assert outcomes(receipts) == [AnswerOutcome.SENT, AnswerOutcome.FAILED, AnswerOutcome.SENT]
    assert [each.receivers for each in receipts] == [0, None, 0]
    assert [type(each.error) for each in receipts] == [type(None), ForbiddenError, type(None)]
    await restrict(fenced.client, fenced.prefix, f"{fenced.prefix}*")
    assert [each.payload for each in await taken_over(bus)] == [b"b"]
    assert outcomes(await bus.finish([answers[1]])) == [AnswerOutcome.SENT]


async def test_forbidden_answers_each_have_their_error(fenced: RedisPlace) -> None:
    """Where all are forbidden, none is lost."""
    bus = await fenced.open("one", lease_seconds=0)
    answers = await answers_of(bus)
    await restrict(fenced.client, fenced.prefix, fenced.requests)

    receipts = await bus.finish(answers)

    assert outcomes(receipts) == [AnswerOutcome.FAILED] * 3
    assert all(isinstance(each.error, ForbiddenError) for each in receipts)
    await restrict(fenced.client, fenced.prefix, f"{fenced.prefix}*")
    assert outcomes(await bus.finish(answers)) == [AnswerOutcome.SENT] * 3


@pytest.mark.parametrize("place", ["redis", "valkey", "shards", "cluster"], indirect=True)
async def test_dead_letter_of_a_wrong_type_costs_no_other(place: RedisPlace) -> None:
    """All get their answers; the dead request stays pending until it can be copied."""
    bus = await place.open("one", lease_seconds=0)
    answers = await answers_of(bus)
    answers[1] = replace(answers[1], dead_letter="why")
    dead = place.prefix + Topics.CONTEXT_BUILD_DEAD
    await place.client.set(dead, "a text")

    receipts = await bus.finish(answers)

    assert outcomes(receipts) == [AnswerOutcome.SENT] * 3
    (delivery,) = await taken_over(bus)
    assert (delivery.payload, await bus.requests.dead_letter(delivery, "why")) == (b"b", False)
    await place.client.delete(dead)
    (delivery,) = await taken_over(bus)
    assert await bus.requests.dead_letter(delivery, "why")
    assert [each["reason"] for each in await place.stream(dead)] == [b"why"]
    assert await bus.requests.claim(10) == []


async def test_server_may_be_too_full_for_one(server: StartServer) -> None:
    """Answers that need no room are out; the others wait, and report that the server is full."""
    running = server()
    async with open_redis_bus(running.url, BusOptions(lease_seconds=60)) as bus:
        answers = await answers_of(bus)
        # within one call of a script, a server that has let it write lets it write on
        answers[2] = replace(answers[2], mode="again")
        with running.client() as client:
            client.config_set("maxmemory", 1)
        receipts = await bus.finish(answers)
        with running.client() as client:
            client.config_set("maxmemory", 0)

        assert outcomes(receipts) == [
            AnswerOutcome.FAILED,
            AnswerOutcome.FAILED,
            AnswerOutcome.SENT,
        ]
        assert all(isinstance(each.error, OverloadedError) for each in receipts[:2])
        assert outcomes(await bus.finish(answers[:2])) == [AnswerOutcome.SENT] * 2


# --- a receipt that is lost -----------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("kind", ["channel", "list"])
async def test_connection_lost_in_the_middle(
    server_url: str, prefix: str, protocol: int, kind: Any
) -> None:
    """Between two receipts: all answers are out, once, and each receipt says so."""
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(relaying(server_url))
        client = await stack.enter_async_context(redis.Redis.from_url(server_url))
        place = RedisPlace(stack, server_url, prefix, client)
        listener = await place.open("two")
        options = BusOptions(prefix=prefix, lease_seconds=60)
        url = f"{relay.url}?protocol={protocol}"
        bus = await stack.enter_async_context(open_redis_bus(url, options))
        replies = f"{prefix}replies"
        answers = await answers_of(bus, reply_to=replies, reply_kind=kind)
        assert outcomes(await bus.finish(answers[:1])) == [AnswerOutcome.SENT]
        heard = await stack.enter_async_context(listener.subscribe(replies))
        relay.last_word = b"sent"

        receipts = await bus.finish(answers[1:])
        await listener.publish_to(replies, b"over")

        assert relay.cuts == 1
        assert outcomes(receipts) == [AnswerOutcome.SENT] * 2
        assert {each.receivers for each in receipts} == {None}
        expected = [each.response for each in answers]
        if kind == "list":
            assert await place.replies(replies, kind) == expected
        else:
            async with asyncio.timeout(60):
                assert [await anext(heard) for _ in range(3)] == [*expected[1:], b"over"]
        assert await bus.requests.depth() == await listener.requests.depth()
        assert (await bus.requests.depth()).pending == 0


@pytest.mark.parametrize("kind", ["channel", "list", "stream"])
async def test_answer_that_is_out_counts_as_sent(place: Place, kind: Any) -> None:
    """Finished again, as after a lost receipt, it is reported as sent, and goes out once."""
    bus = await place.open("one", lease_seconds=60)
    replies = f"{place.prefix}replies"
    answers = await answers_of(bus, reply_to=replies, reply_kind=kind)
    async with bus.subscribe(replies) as heard:
        await bus.finish(answers)

        receipts = await bus.finish(answers)
        await bus.publish_to(replies, b"over")

        assert receipts == [Receipt(outcome=AnswerOutcome.SENT)] * 3
        expected = [each.response for each in answers]
        if kind == "channel":
            async with asyncio.timeout(60):
                # the nodes of a cluster pass on what is published in an order of their own
                found = [await anext(heard) for _ in range(4)]
            assert sorted(found) == sorted([*expected, b"over"])
        else:
            assert await place.replies(replies, kind) == expected


@pytest.mark.parametrize("mode", ["unstored", "again"])
async def test_other_answers_that_are_out_are_not_known(place: Place, mode: Any) -> None:
    """Those without a stored answer can't be distinguished from another worker's."""
    bus = await place.open("one", lease_seconds=60)
    first, *_ = await answers_of(bus)
    await bus.finish([first])

    assert outcomes(await bus.finish([replace(first, mode=mode)])) == [AnswerOutcome.NOT_MINE]


async def test_answer_too_large_to_keep_is_not_known(place: Place) -> None:
    """What is noted of it says nothing of whose it was."""
    bus = await place.open("one", lease_seconds=60, result_max_bytes=70)
    response = b'{"text":"%b"}' % bytes(range(48, 90)) * 2
    answers = await answers_of(bus)
    large = replace(answers[0], response=response)
    finish = partial(bus.finish, [large])

    assert outcomes(await finish()) == [AnswerOutcome.SENT]
    assert outcomes(await finish()) == [AnswerOutcome.NOT_MINE]
