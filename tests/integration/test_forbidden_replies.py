"""Replies that the server's rules keep a worker from writing, on real servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis.asyncio as redis
from structlog.testing import capture_logs

from service.adapters.redis import finishing
from service.adapters.redis.driver import Script
from service.errors import ForbiddenError
from service.ports.bus import AnswerOutcome, Identity
from service.wire.protocol import Topics
from tests.integration.bus_places import ASKED, SHORT, RedisPlace, answer, received
from tests.integration.test_worker import Crew, Gate, answer_to, asking, open_crew, until

pytestmark = pytest.mark.integration

#: Where the workers of these tests may not write, though requests may name it for replies.
ELSEWHERE = "elsewhere."

#: Lets a script hear of a channel that is forbidden as Redis 6.2 says it: without a code.
OLD_WORDS = """
local server = redis
local redis = {call = server.call}
redis.pcall = function(name, ...)
  local reply = server.pcall(name, ...)
  if name == 'PUBLISH' and type(reply) == 'table' then
    return {err = '@user_script: 1: The user executing the script may not publish there'}
  end
  return reply
end
"""


@pytest.fixture
async def fenced(server_url: str, prefix: str) -> AsyncIterator[RedisPlace]:
    """Give a server on which the buses have rights to what begins with the prefix alone."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(redis.Redis.from_url(server_url))
        await restrict(client, prefix, f"{prefix}*")
        stack.push_async_callback(client.acl_deluser, prefix)
        url = server_url.replace("://", f"://{prefix}:any@")
        yield RedisPlace(stack, url, prefix, client)


async def restrict(client: redis.Redis, user: str, *keys: str) -> None:
    """Give a user all commands, some keys, the channels of those names and those of clients."""
    channels = [*keys, "context.reply.*"]
    rights: dict[str, Any] = {"keys": keys, "channels": channels, "categories": ["+@all"]}
    await client.acl_setuser(user, enabled=True, nopass=True, reset=True, **rights)


@asynccontextmanager
async def working(place: RedisPlace) -> AsyncIterator[Crew]:
    """Run a worker that takes requests for replies where it may not write."""
    allowed = [f"{place.prefix}reply.", f"{place.prefix}{ELSEWHERE}", ELSEWHERE]
    async with open_crew(place, bus={"reply_prefixes": allowed}) as crew:
        await crew.hire()
        yield crew


# --- the bus ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "stream"])
@pytest.mark.parametrize("mode", ["first", "unstored", "again"])
async def test_forbidden_reply_is_reported_and_leaves_the_others_alone(
    fenced: RedisPlace, kind: str, mode: str
) -> None:
    """It is neither stored nor settled, counted and logged once; its batch goes out."""
    bus = await fenced.open("one", lease_seconds=0)
    replies = f"{fenced.prefix}replies"
    for number in range(3):
        await bus.submit(b"%d" % number)
    places = [replies, f"{ELSEWHERE}{fenced.prefix}", replies]
    answers = [
        answer(each, identity=Identity("a", str(n)), reply_to=to, reply_kind=kind, mode=mode)
        for n, (each, to) in enumerate(zip(await received(bus), places, strict=True))
    ]

    with capture_logs() as logged:
        receipts = await bus.finish(answers)

    outcomes = [receipt.outcome for receipt in receipts]
    assert outcomes == [AnswerOutcome.SENT, AnswerOutcome.FORBIDDEN, AnswerOutcome.SENT]
    assert len(await fenced.replies(replies, kind)) == 2
    assert await bus.find_results([Identity("a", "1")]) == [None]
    assert [delivery.payload for delivery in await bus.requests.claim(10)] == [b"1"]
    assert bus.forbidden == 1
    assert [(line["event"], line["reply_to"]) for line in logged] == [
        ("bus.reply_forbidden", places[1])
    ]


async def test_channel_is_no_key(fenced: RedisPlace) -> None:
    """A worker may publish on a channel of whose name it may have no key."""
    await fenced.client.acl_setuser(fenced.prefix, enabled=True, channels=["other.*"])
    bus = await fenced.open("one", lease_seconds=SHORT)
    channel = f"other.{fenced.prefix}"
    await bus.submit(b"1")
    (delivery,) = await received(bus)

    async with bus.subscribe(channel) as replies:
        (receipt,) = await bus.finish([answer(delivery, reply_to=channel)])
        async with asyncio.timeout(60):
            assert await anext(replies) == b'{"n":1}'

    assert (receipt.outcome, receipt.receivers) == (AnswerOutcome.SENT, 1)
    assert bus.forbidden == 0


@pytest.mark.parametrize("prelude", ["", OLD_WORDS])
async def test_forbidden_channel_leaves_the_others_alone(
    fenced: RedisPlace, monkeypatch: pytest.MonkeyPatch, prelude: str
) -> None:
    """Its answer is stored and settled like those that went with it, and logged, in any words."""
    monkeypatch.setattr(finishing, "FINISH", Script(prelude + finishing.FINISH.source))
    bus = await fenced.open("one", lease_seconds=0)
    for number in range(3):
        await bus.submit(b"%d" % number)
    own = f"{fenced.prefix}replies"
    places = [own, f"{ELSEWHERE}{fenced.prefix}", own]
    answers = [
        answer(each, identity=Identity("a", str(n)), reply_to=to)
        for n, (each, to) in enumerate(zip(await received(bus), places, strict=True))
    ]

    with capture_logs() as logged:
        receipts = await bus.finish(answers)

    sent, refused = (AnswerOutcome.SENT, 0), (AnswerOutcome.SENT, None)
    assert [(each.outcome, each.receivers) for each in receipts] == [sent, refused, sent]
    assert None not in await bus.find_results([each.identity for each in answers])
    assert await bus.requests.claim(10) == []
    assert [(line["event"], line["reply_to"]) for line in logged] == [
        ("bus.reply_refused", places[1])
    ]


async def test_worker_without_its_own_keys_settles_nothing(fenced: RedisPlace) -> None:
    """Where the rules forbid a key of ours, no reply is at fault."""
    bus = await fenced.open("one")
    await bus.submit(b"1")
    (delivery,) = await received(bus)
    stream = f"{fenced.prefix}{Topics.CONTEXT_BUILD_REQUEST}"
    await restrict(fenced.client, fenced.prefix, stream)

    (receipt,) = await bus.finish([answer(delivery)])

    assert receipt.outcome == AnswerOutcome.FAILED
    assert isinstance(receipt.error, ForbiddenError)
    await restrict(fenced.client, fenced.prefix, f"{fenced.prefix}*")
    assert await bus.find_results([ASKED]) == [None]
    assert [each.outcome for each in await bus.finish([answer(delivery)])] == [AnswerOutcome.SENT]


# --- the worker ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "stream"])
async def test_forbidden_reply_becomes_one_error(fenced: RedisPlace, kind: str) -> None:
    """The common channel hears of it, with the place; others are answered where they ask.

    It isn't stored: the corrected request gets its answer.
    """
    own, other = f"{fenced.prefix}reply.me", f"{ELSEWHERE}{fenced.prefix}"
    async with working(fenced) as crew, crew.bus.subscribe(common(fenced)) as responses:
        for name, place in (("msg_1", own), ("msg_2", other), ("msg_3", own)):
            metadata = {"reply_to": place, "reply_kind": kind}
            await crew.bus.submit(json.dumps(asking(id=name, metadata=metadata)).encode())
        (error,) = await heard(responses, 1)
        await until(lambda: answered(fenced, own, kind, 2))
        await until(lambda: settled(fenced))
        again = asking(id="msg_2", metadata={"reply_to": other, "reply_kind": kind})
        await crew.bus.submit(json.dumps(again).encode())
        (repeated,) = await heard(responses, 1)
        corrected = asking(id="msg_2", metadata={"reply_to": own, "reply_kind": kind})
        await crew.bus.submit(json.dumps(corrected).encode())
        await until(lambda: answered(fenced, own, kind, 3))
        await until(lambda: settled(fenced))
        assert await buried(fenced) == []

    assert error["metadata"]["request_id"] == "msg_2"
    assert error["content"]["error"]["code"] == "invalid_request"
    assert error["content"]["error"]["errors"][0]["pointer"] == "/metadata/reply_to"
    assert repeated["id"] != error["id"]
    assert repeated["content"] == error["content"]
    replies = [json.loads(reply) for reply in await fenced.replies(own, kind)]
    assert [reply["content"]["status"] for reply in replies] == ["success"] * 3


async def test_given_up_request_of_a_forbidden_reply_is_dead_lettered(fenced: RedisPlace) -> None:
    """Delivered too often, it goes to the dead letter with the reason, and no further."""
    dying = await fenced.open("dying", lease_seconds=0)
    metadata = {"reply_to": f"{ELSEWHERE}{fenced.prefix}", "reply_kind": "list"}
    await dying.submit(json.dumps(asking(id="msg_1", metadata=metadata)).encode())
    await received(dying)
    for _ in range(2):
        await dying.requests.claim(1)
    async with (
        open_crew(fenced, bus={"reply_prefixes": [ELSEWHERE]}) as crew,
        crew.bus.subscribe(common(fenced)) as responses,
    ):
        await crew.hire()  # now that somebody listens: it takes what waits at once
        (error,) = await heard(responses, 1)
        await until(lambda: settled(fenced))

    assert error["metadata"]["request_id"] == "msg_1"
    assert await buried(fenced) == [b"delivered 3 times without an answer"]


async def test_forbidden_refusal_holds_nobody_up(fenced: RedisPlace) -> None:
    """A caller with a forbidden reply gets no `overloaded`; the next caller does."""
    async with open_crew(fenced, bus={"max_backlog": 3, "reply_prefixes": [ELSEWHERE]}) as crew:
        gate = Gate()
        await crew.hire(gate.joined(crew.builder))
        for number in range(6):
            await crew.bus.submit(json.dumps(asking(id=f"msg_{number}")).encode())
        async with crew.bus.subscribe(common(fenced)) as responses:
            for name, metadata in (("late", {"reply_to": f"{ELSEWHERE}x"}), ("later", {})):
                late = json.dumps(asking(id=name, metadata=metadata)).encode()
                await crew.bus.publish(Topics.CONTEXT_BUILD_REQUEST, late)
            error = (await answer_to("later", responses))["content"]["error"]
        gate.open.set()

    assert error["code"] == "overloaded"


async def test_stored_answer_is_not_sent_where_it_may_not_go(fenced: RedisPlace) -> None:
    """A retry that asks for its reply elsewhere gets the error; the stored answer stays."""
    async with working(fenced) as crew, crew.bus.subscribe(common(fenced)) as responses:
        await crew.bus.submit(json.dumps(asking(id="msg_1")).encode())
        (first,) = await heard(responses, 1)
        metadata = {"reply_to": f"{ELSEWHERE}{fenced.prefix}", "reply_kind": "list"}
        await crew.bus.submit(json.dumps(asking(id="msg_1", metadata=metadata)).encode())
        (second,) = await heard(responses, 1)
        await crew.bus.submit(json.dumps(asking(id="msg_1")).encode())
        (third,) = await heard(responses, 1)

    statuses = [each["content"]["status"] for each in (first, second, third)]
    assert statuses == ["success", "error", "success"]
    assert first["content"] == third["content"]


def common(place: RedisPlace) -> str:
    """Return the channel of responses without another destination."""
    return f"{place.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"


async def heard(responses: AsyncIterator[bytes], count: int) -> list[dict[str, Any]]:
    """Return the next responses."""
    async with asyncio.timeout(60):
        return [json.loads(await anext(responses)) for _ in range(count)]


async def answered(place: RedisPlace, name: str, kind: str, count: int) -> bool:
    """Return whether n replies wait."""
    return len(await place.replies(name, kind)) == count


async def settled(place: RedisPlace) -> bool:
    """Say whether no request is in work."""
    stream = f"{place.prefix}{Topics.CONTEXT_BUILD_REQUEST}"
    facts: Any = await place.client.xpending(stream, "context-builders")
    return bool(facts["pending"] == 0)


async def buried(place: RedisPlace) -> list[bytes]:
    """Return the reasons in the dead letter, but for those of the crew's own pings."""
    dead = await place.stream(f"{place.prefix}{Topics.CONTEXT_BUILD_DEAD}")
    return [entry["reason"] for entry in dead if entry["data"] != b"ping"]
