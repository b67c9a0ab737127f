"""What every bus promises about requests on the channel, on every bus there is."""

import asyncio
from itertools import count

import pytest

from service.ports.bus import Enqueued
from service.wire.protocol import Topics
from service.wire.response import StoredResult
from tests.integration.bus_places import ASKED, SHORT, Place, answer, payloads, received, until

pytestmark = pytest.mark.integration


# --- the channel of requests -----------------------------------------------------------------


async def test_every_worker_hears_a_request(place: Place) -> None:
    """What is published on the request channel reaches all that listen."""
    one, two = await place.open("one"), await place.open("two")

    async with one.subscribe_requests() as first, two.subscribe_requests() as second:
        heard_by = await one.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")
        async with asyncio.timeout(60):
            assert await anext(first) == [b"1"]
            assert await anext(second) == [b"1"]
    assert heard_by == 2

    async def is_unheard() -> bool:
        return not await one.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")

    await until(is_unheard)  # a server notices only later that their connections were closed


async def test_heard_comes_in_batches(place: Place) -> None:
    """Requests that came in together are handed out together, 256 at most, none lost."""
    bus = await place.open("one")
    sent = [b"%d" % number for number in range(600)]
    heard: list[list[bytes]] = []

    async with bus.subscribe_requests() as batches:
        for payload in sent:
            await bus.publish(Topics.CONTEXT_BUILD_REQUEST, payload)
        async with asyncio.timeout(60):
            while sum(map(len, heard)) < len(sent):
                heard.append(await anext(batches))
    assert [payload for batch in heard for payload in batch] == sent
    assert 1 < max(map(len, heard)) <= 256


async def test_one_copy_enters_the_stream(place: Place) -> None:
    """However many workers hear a payload, it enters the stream once."""
    one, two = await place.open("one"), await place.open("two")

    assert await one.enqueue([b"1", b"2"]) == [Enqueued.ENQUEUED, Enqueued.ENQUEUED]
    assert await two.enqueue([b"2", b"1"]) == [Enqueued.KNOWN, Enqueued.KNOWN]
    assert payloads(await received(one)) == [b"1", b"2"]


async def test_topics_are_apart(place: Place) -> None:
    """A payload of one channel is not a copy of an equal payload of the other."""
    one, two = await place.open("one"), await place.open("two")

    assert await one.enqueue([b"1"]) == [Enqueued.ENQUEUED]
    assert await two.enqueue([b"1"], Topics.CONTEXT_RECALL_REQUEST) == [Enqueued.ENQUEUED]
    assert [delivery.recall for delivery in await received(one, 2)] == [False, True]


async def test_retry_is_enqueued_again(place: Place) -> None:
    """A payload that a worker hears twice is a retry and enters the stream again, once."""
    one, two = await place.open("one"), await place.open("two")
    await one.enqueue([b"1"])
    await two.enqueue([b"1"])

    assert await two.enqueue([b"1"]) == [Enqueued.ENQUEUED]
    assert await one.enqueue([b"1"]) == [Enqueued.KNOWN]
    assert payloads(await received(one)) == [b"1", b"1"]


async def test_full_backlog_refuses(place: Place) -> None:
    """At the largest backlog the ingress refuses, and logs it in one of the workers."""
    one, two = await place.open("one", max_backlog=1), await place.open("two", max_backlog=1)

    assert await one.enqueue([b"1", b"2"]) == [Enqueued.ENQUEUED, Enqueued.REFUSED]
    assert await two.enqueue([b"2"]) == [Enqueued.KNOWN]
    await one.requests.ack(await received(one))
    await one.requests.trim()
    assert await two.enqueue([b"2"]) == [Enqueued.ENQUEUED]


async def test_retry_reaches_a_worker_that_was_started_again(place: Place) -> None:
    """A retry that only a new worker hears is enqueued, however many new ones heard a copy."""
    one = await place.open("one", heard_ttl_seconds=SHORT)
    await one.enqueue([b"1"])
    (delivery,) = await received(one)
    await one.finish([answer(delivery)])
    numbers = count()

    async def enqueued() -> bool:
        new = await place.open(f"new-{next(numbers)}", heard_ttl_seconds=SHORT)
        return await new.enqueue([b"1"]) == [Enqueued.ENQUEUED]

    await until(enqueued)
    assert payloads(await received(one)) == [b"1"]
    assert await one.find_results([ASKED]) == [StoredResult(fingerprint="f1", response={"n": 1})]
