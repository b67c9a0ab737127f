"""The client, against a bus in memory and a worker that this test plays."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import MemoryBus, open_memory_bus
from service.adapters.memory.hub import MemoryHub
from service.errors import BudgetExceededError, BusError, ContextBuilderError, InvalidRequestError
from service.wire.protocol import Topics
from service.wire.request import decode
from service.wire.response import BuildResponse, error_response
from service.worker.client import ContextClient, NoAnswerError, open_client
from tests.support import NOW

REQUEST = {"owner_key": "o", "content": {"current_input": "hi"}}


@pytest.fixture
async def hub() -> MemoryHub:
    """What the client's bus and the test share."""
    return MemoryHub()


@pytest.fixture
async def bus(hub: MemoryHub) -> AsyncIterator[MemoryBus]:
    """A bus on the hub."""
    async with open_memory_bus(BusOptions(), hub) as bus:
        yield bus


@pytest.fixture
async def client(bus: MemoryBus) -> AsyncIterator[ContextClient]:
    """A client on the bus."""
    async with open_client(bus, timeout_seconds=60) as client:
        yield client


async def heard(bus: MemoryBus) -> dict[str, Any]:
    """Return the next request in the stream."""
    while True:
        for delivery in await bus.requests.receive(1, wait=1):
            request: dict[str, Any] = json.loads(delivery.payload)
            return request


def refusal(request: dict[str, Any], error: ContextBuilderError) -> bytes:
    """Return the error response to a request."""
    envelope = decode(json.dumps(request).encode()).envelope
    return error_response(BuildResponse, envelope, error, NOW).model_dump_json().encode()


async def test_what_is_no_response_is_passed_over(
    client: ContextClient, bus: MemoryBus, hub: MemoryHub
) -> None:
    """Somebody else's bytes, and responses to others, do no harm."""
    waiting = asyncio.create_task(client.send(REQUEST))
    request = await heard(bus)
    channel = request["metadata"]["reply_to"]
    other = refusal({**request, "id": "msg_other"}, BudgetExceededError("no"))
    mine = refusal(request, BudgetExceededError("too large"))
    for payload in (b"nonsense", other, mine, mine):
        hub.publish(channel, payload)

    response = await waiting
    assert response.metadata.request_id == request["id"]


async def test_an_unknown_code_is_the_root_error_with_that_code(
    client: ContextClient, bus: MemoryBus, hub: MemoryHub
) -> None:
    """A newer service may have errors that this client has no class for."""
    waiting = asyncio.create_task(client.build(REQUEST))
    request = await heard(bus)
    reply = json.loads(refusal(request, BudgetExceededError("no")))
    reply["content"]["error"] |= {"code": "brand_new", "retryable": True}
    hub.publish(request["metadata"]["reply_to"], json.dumps(reply).encode())

    with pytest.raises(ContextBuilderError) as caught:
        await waiting
    assert (caught.value.code, caught.value.retryable) == ("brand_new", True)


async def test_the_worker_knows_how_long_the_client_waits(
    client: ContextClient, bus: MemoryBus
) -> None:
    """The timeout is the request's, unless it brings its own."""
    own = {**REQUEST, "metadata": {"timeout_ms": 7}}
    waiting = [
        asyncio.create_task(client.send(REQUEST, timeout_seconds=60)),
        asyncio.create_task(client.send(own)),
    ]
    sent = [(await heard(bus))["metadata"]["timeout_ms"] for _ in waiting]
    for task in waiting:
        task.cancel()

    assert sorted(sent) == [7, 60_000]


async def test_two_who_wait_for_one_id_both_get_the_response(
    client: ContextClient, bus: MemoryBus, hub: MemoryHub
) -> None:
    """A retry by the same client joins the first attempt."""
    request = {**REQUEST, "id": "msg_1"}
    waiting = [asyncio.create_task(client.send(request)) for _ in range(2)]
    sent, _ = [await heard(bus) for _ in waiting]
    hub.publish(sent["metadata"]["reply_to"], refusal(sent, BudgetExceededError("no")))
    first, second = [await each for each in waiting]

    assert first == second


@pytest.mark.parametrize("wrong", [{"owner_key": None}, {"owner_key": 5}, {"id": 5}])
async def test_a_request_that_cannot_be_answered_is_refused(
    client: ContextClient, hub: MemoryHub, wrong: dict[str, object]
) -> None:
    """An answer has the owner and the id, by which its caller is found."""
    with pytest.raises(InvalidRequestError, match=f"^/{next(iter(wrong))}: "):
        await client.send({**REQUEST, **wrong})

    assert not hub.streams


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ('{"owner_key": "a"}', "a request has to be a mapping, not '{"),
        (None, "a request has to be a mapping, not None"),
        ({**REQUEST, "metadata": "x"}, "^/metadata: has to be a mapping, not 'x'"),
    ],
)
async def test_what_is_no_request_is_refused(
    client: ContextClient, request_: Any, error: str
) -> None:
    """Such as the text of a file, where its JSON was meant."""
    with pytest.raises(InvalidRequestError, match=error):
        await client.build(request_)


async def test_the_topic_has_the_prefix_of_the_bus(hub: MemoryHub) -> None:
    """Two deployments on one server do not hear each other."""
    async with (
        open_memory_bus(BusOptions(prefix="a."), hub) as one,
        open_client(one, timeout_seconds=60) as client,
    ):
        waiting = asyncio.create_task(client.send(REQUEST))
        await heard(one)
        waiting.cancel()
        assert list(hub.streams) == [f"a.{Topics.CONTEXT_BUILD_REQUEST}"]


async def test_one_who_gives_up_does_not_take_the_response_from_the_other(
    client: ContextClient, bus: MemoryBus, hub: MemoryHub
) -> None:
    """Each waits for itself."""
    request = {**REQUEST, "id": "msg_1"}
    hasty = asyncio.create_task(client.send(request, timeout_seconds=0.01))
    patient = asyncio.create_task(client.send(request))
    sent, _ = [await heard(bus) for _ in range(2)]
    with pytest.raises(NoAnswerError):
        await hasty
    hub.publish(sent["metadata"]["reply_to"], refusal(sent, BudgetExceededError("no")))

    assert (await patient).metadata.request_id == "msg_1"


async def test_a_channel_that_breaks_off_is_reported_to_waiting_callers(bus: MemoryBus) -> None:
    """They need not wait for their timeout."""

    async def breaking() -> AsyncIterator[bytes]:
        await heard(bus)
        raise OSError("gone")
        yield b""

    client = ContextClient(bus, "context.reply.x")
    listening = asyncio.create_task(client.receive(breaking()))
    listening.add_done_callback(client.fail_waiting)

    for _ in ("while it waited", "later"):
        with pytest.raises(BusError, match="channel of replies"):
            await client.send(REQUEST)


async def test_a_closed_client_sends_nothing(bus: MemoryBus) -> None:
    """Who still waits, or sends later, doesn't get an error about workers."""
    async with open_client(bus, timeout_seconds=60) as client:
        waiting = asyncio.create_task(client.send(REQUEST))
        await heard(bus)

    for send in (waiting, client.send(REQUEST)):
        with pytest.raises(BusError, match="the client is closed"):
            await send
    assert await bus.requests.receive(1, wait=0) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout_seconds": 0}, "timeout_seconds has to be above 0, not 0"),
        ({"timeout_seconds": -1.5}, "timeout_seconds has to be above 0, not -1.5"),
        ({"via": "pigeon"}, "via has to be stream or channel, not 'pigeon'"),
    ],
)
async def test_what_cannot_be_sent_is_refused(
    options: dict[str, Any], problem: str, client: ContextClient, bus: MemoryBus
) -> None:
    """No default and no other way is taken instead."""
    with pytest.raises(InvalidRequestError, match=problem):
        await client.send(REQUEST, **options)

    assert await bus.requests.receive(1, wait=0) == []


async def test_owners_who_chose_one_id_get_their_own_responses(
    client: ContextClient, bus: MemoryBus, hub: MemoryHub
) -> None:
    """Though they wait at the same time, on the same channel."""
    owners = ("ana", "bob")
    asked = {
        owner: asyncio.create_task(client.send({**REQUEST, "id": "msg_1", "owner_key": owner}))
        for owner in owners
    }
    for _ in owners:
        request = await heard(bus)
        hub.publish(request["metadata"]["reply_to"], refusal(request, BudgetExceededError()))

    for owner, task in asked.items():
        assert (await task).owner_key == owner


async def test_text_is_sent_in_utf8(client: ContextClient, bus: MemoryBus) -> None:
    """Escapes would take up to three times the bytes, and workers limit these."""
    text = "\u65e5\u672c\ud83d" + "\U0001f600"
    waiting = asyncio.create_task(client.send({**REQUEST, "content": {"current_input": text}}))
    (delivery,) = await bus.requests.receive(1, wait=60)
    waiting.cancel()

    assert "\u65e5\u672c\\ud83d\U0001f600".encode() in delivery.payload
    assert json.loads(delivery.payload)["content"]["current_input"] == text


async def test_what_workers_could_not_read_is_refused_at_once(bus: MemoryBus) -> None:
    """A larger request would be a dead letter, and its sender would wait in vain."""
    large = {**REQUEST, "content": {"current_input": "x" * 1_000}}
    async with open_client(bus, max_bytes=1_000) as client:
        with pytest.raises(InvalidRequestError, match=r"1000 are allowed \(bus"):
            await client.send(large)

    assert await bus.requests.receive(1, wait=0) == []
