"""Recalls on every bus: with all that is promised of requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from formatters.model import Row
from service.config.settings import GatherSettings
from service.errors import (
    DeadlineExceededError,
    HistoryUnavailableError,
    IdConflictError,
    InvalidRequestError,
)
from service.wire.protocol import Topics
from service.worker.client import NoAnswerError
from service.worker.ingress import RecallStream
from tests.integration.bus_places import Place
from tests.integration.test_worker import Crew, asking, counted, open_crew, replied, until
from tests.published import published
from tests.support import BrokenHistory, row

pytestmark = pytest.mark.parametrize(
    "place", ["memory", "redis", "shards", "cluster"], indirect=True
)

ROWS: list[Row] = [row(n, ("HUMAN", "AI")[n % 2], f"The number is {n}") for n in range(40)]


@pytest.fixture
async def crew(place: Place) -> AsyncIterator[Crew]:
    """Give a crew of one worker, and an owner with a history."""
    async with open_crew(place) as crew:
        await crew.builder.history.append("o", ROWS)
        await crew.hire()
        yield crew


def recalling(**fields: Any) -> dict[str, Any]:
    """Return a recall."""
    return {"owner_key": "o", "content": {"ids": ["m3"]}, **fields}


@pytest.mark.parametrize("via", ["stream", "channel"])
async def test_a_recall_is_answered(crew: Crew, via: Any) -> None:
    """Over both ways in of requests."""
    content = await crew.client.recall(recalling(), via=via)

    assert content.text.endswith(": The number is 3")
    assert [message.message_ids for message in content.messages] == [["m3"]]


@pytest.mark.parametrize("way", ["append", "publish"])
async def test_a_recall_has_topics_of_its_own(crew: Crew, way: str) -> None:
    """The stream and the channel are ways in, and the answer is on its own channel."""
    channel = f"{crew.place.prefix}{Topics.CONTEXT_RECALL_RESPONSE}"
    async with crew.bus.subscribe(channel) as responses:
        payload = json.dumps(recalling(id="msg_1", metadata={"correlation_id": "c"})).encode()
        put = partial(getattr(crew.bus, way), Topics.CONTEXT_RECALL_REQUEST, payload)
        # nobody may listen on the second channel yet
        await until(put)
        async with asyncio.timeout(60):
            response = json.loads(await anext(responses))

    published("recall_response").validate(response)
    assert response["content"]["status"] == "success"
    assert response["metadata"]["request_id"] == "msg_1"
    assert response["metadata"]["correlation_id"] == "c"
    # the entry is gone once it is moved, and the request once it is answered
    for topic in (Topics.CONTEXT_RECALL_REQUEST, Topics.CONTEXT_BUILD_REQUEST):
        inbox = crew.bus.recalls if topic == Topics.CONTEXT_RECALL_REQUEST else crew.bus.requests
        await until(partial(_settled, inbox))


async def _settled(inbox: Any) -> bool:
    depth = await inbox.depth()
    return depth.pending == 0 and not depth.lag


@pytest.mark.parametrize("kind", ["list", "stream"])
async def test_a_reply_can_wait_for_its_reader(crew: Crew, kind: str) -> None:
    """As that to a request."""
    reply_to = f"context.reply.{crew.place.prefix}{kind}"
    metadata = {"reply_to": reply_to, "reply_kind": kind}
    await crew.bus.append(
        Topics.CONTEXT_RECALL_REQUEST, json.dumps(recalling(metadata=metadata)).encode()
    )
    replies = partial(crew.place.replies, reply_to, kind)
    await until(replies)

    (reply,) = await replies()
    assert json.loads(reply)["content"]["status"] == "success"


async def test_a_retry_gets_the_same_answer(crew: Crew) -> None:
    """The stored one, though the history has changed; another recall under the id is a conflict."""
    asked = recalling(id="msg_1", content={"grep": "number is 39"})
    first = await crew.client.exchange(asked)
    await crew.builder.history.prune("o", ["m39"])
    again = await crew.client.exchange(asked)

    assert again.id == first.id
    assert again.content == first.content
    assert counted(crew)["duplicates_suppressed stored"] == 1
    with pytest.raises(IdConflictError):
        await crew.client.recall(recalling(id="msg_1"))
    with pytest.raises(IdConflictError):
        await crew.client.build(asking(id="msg_1"))


async def test_errors_are_those_of_requests(crew: Crew) -> None:
    """With their places, codes, and whether to try again."""
    with pytest.raises(InvalidRequestError) as invalid:
        await crew.client.recall(recalling(content={"ids": []}))
    assert [problem.pointer for problem in invalid.value.problems] == ["/content/ids"]
    with pytest.raises(DeadlineExceededError):
        await crew.client.recall(recalling(metadata={"deadline": "2000-01-01T00:00:00Z"}))
    with pytest.raises(InvalidRequestError, match="recall"):
        await crew.client.build(recalling())
    with pytest.raises(InvalidRequestError, match="build"):
        await crew.client.recall(asking())


@pytest.mark.parametrize("last", [Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_RECALL_REQUEST])
async def test_a_message_on_both_topics_has_two_answers(crew: Crew, last: Topics) -> None:
    """The context, and an error that says where it belongs, in either order."""
    reply_to = f"context.reply.{crew.place.prefix}both"
    metadata = {"reply_to": reply_to, "reply_kind": "list"}
    payload = json.dumps(asking(id="msg_1", metadata=metadata)).encode()
    topics = {Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_RECALL_REQUEST}
    for count, topic in enumerate([*(topics - {last}), last], start=1):
        await crew.bus.append(topic, payload)
        await until(partial(replied, crew, reply_to, count), 60)

    responses = [json.loads(each) for each in await crew.place.replies(reply_to, "list")]
    if last == Topics.CONTEXT_BUILD_REQUEST:
        responses.reverse()
    built, refused = responses
    assert built["content"]["status"] == "success"
    (problem,) = refused["content"]["error"]["errors"]
    assert problem["detail"].startswith("is no recall; send it to context.build.request")
    assert built["id"] != refused["id"]


async def test_errors_go_where_answers_go(crew: Crew) -> None:
    """A recall without a `reply_to` finds its error on the channel of its kind."""
    channel = f"{crew.place.prefix}{Topics.CONTEXT_RECALL_RESPONSE}"
    async with crew.bus.subscribe(channel) as responses:
        bad = recalling(content={"around": ""}, metadata={"reply_to": "not allowed"})
        await crew.bus.submit(json.dumps(bad).encode())
        async with asyncio.timeout(60):
            response = json.loads(await anext(responses))

    published("recall_response").validate(response)
    assert response["content"]["error"]["code"] == "invalid_request"


async def test_a_history_that_is_away_is_an_error(place: Place) -> None:
    """One that isn't stored: the same recall may succeed later."""
    async with open_crew(place, gather=GatherSettings(history_timeout_seconds=0.05)) as crew:
        sources = replace(crew.builder.sources, history=BrokenHistory(hangs=True))
        await crew.hire(replace(crew.builder, sources=sources))
        with pytest.raises(HistoryUnavailableError) as failure:
            await crew.client.recall(recalling(id="msg_1", content={"query": "number"}))
        assert failure.value.retryable
        await crew.dismiss()
        await crew.builder.history.append("o", ROWS)
        await crew.hire()

        answer = await crew.client.recall(recalling(id="msg_1", content={"query": "number"}))
        assert answer.messages


async def test_a_build_of_another_worker_can_be_excluded(crew: Crew) -> None:
    """Its report is on the bus for all of them."""
    built = await crew.client.build(asking("What now?", content={"current_input": "What now?"}))
    await until(lambda: crew.bus.reports.existing([built.build_id]))
    await crew.dismiss()
    await crew.hire(replace(crew.builder, shown=type(crew.builder.shown)(1)))

    content = {"grep": "number", "max_tokens": 2_000}
    answer = await crew.client.recall(
        recalling(content={**content, "exclude_build": built.build_id})
    )
    assert [m.message_ids[0] for m in answer.messages] == [f"m{n}" for n in range(20)]
    assert answer.warnings == []


async def test_what_a_dead_worker_has_read_is_moved_by_another(place: Place) -> None:
    """An entry that was read and not moved isn't lost, nor answered twice."""
    async with open_crew(place) as crew:
        await crew.builder.history.append("o", ROWS)
        bus = await place.open("dies", **crew.options)
        reply_to = f"context.reply.{place.prefix}"
        metadata = {"reply_to": reply_to, "reply_kind": "list"}
        payload = json.dumps(recalling(id="msg_1", metadata=metadata)).encode()
        for _ in range(2):
            await bus.append(Topics.CONTEXT_RECALL_REQUEST, payload)
        (first, _) = await bus.recalls.receive(2, wait=1)
        await bus.submit(first.payload)  # it died before it could settle the entry
        await crew.hire()
        await until(partial(_settled, crew.bus.recalls))
        await until(partial(_settled, crew.bus.requests))

        replies = [json.loads(reply)["id"] for reply in await place.replies(reply_to, "list")]
        assert len(replies) == 3
        assert len(set(replies)) == 1


async def test_an_entry_without_a_payload_is_a_dead_letter(place: Place) -> None:
    """It can't be moved, and doesn't hold up the others."""
    async with open_crew(place) as crew:
        for payload in (b"", json.dumps(recalling()).encode()):
            await crew.bus.append(Topics.CONTEXT_RECALL_REQUEST, payload)
        await RecallStream(crew.bus).take_new()

        (letter,) = [letter async for letter in crew.bus.dead_letters.scan()]
        assert letter.source == Topics.CONTEXT_RECALL_REQUEST
        assert len(await crew.bus.requests.receive(2, wait=1)) == 1
        await RecallStream(crew.bus).trim()
        assert await crew.stream(Topics.CONTEXT_RECALL_REQUEST) == []


async def test_the_time_to_answer_begins_with_the_first_entry(place: Place) -> None:
    """Not when it is moved: a recall that has waited for too long isn't answered."""
    async with open_crew(place) as crew:
        late = recalling(metadata={"timeout_ms": 50})
        await crew.bus.append(Topics.CONTEXT_RECALL_REQUEST, json.dumps(late).encode())
        (entry,) = await crew.bus.recalls.receive(1, wait=1)
        await asyncio.sleep(0.1)
        await crew.bus.submit(entry.payload, recall=entry.token)

        (moved,) = await crew.bus.requests.receive(1, wait=1)
        assert moved.recall
        assert moved.received_at == entry.received_at


@pytest.mark.parametrize("way", ["append", "publish"])
@pytest.mark.parametrize("content", [{}, None, {"max_tokens": 300}, {"current_input": "hi"}])
async def test_on_its_topics_everything_is_a_recall(crew: Crew, way: str, content: Any) -> None:
    """Whatever its content: no context is built for it."""
    channel = f"{crew.place.prefix}{Topics.CONTEXT_RECALL_RESPONSE}"
    async with crew.bus.subscribe(channel) as responses:
        payload = json.dumps(recalling(id="msg_1", content=content)).encode()
        put = partial(getattr(crew.bus, way), Topics.CONTEXT_RECALL_REQUEST, payload)
        await until(put)
        async with asyncio.timeout(60):
            response = json.loads(await anext(responses))

    published("recall_response").validate(response)
    assert response["content"]["error"]["code"] == "invalid_request"


async def test_without_a_worker_a_recall_waits(place: Place) -> None:
    """In its stream, until one starts."""
    async with open_crew(place) as crew:
        await crew.builder.history.append("o", ROWS)
        asked = recalling(id="msg_1", metadata={"timeout_ms": 60_000})
        with pytest.raises(NoAnswerError):
            await crew.client.recall(asked, timeout_seconds=0.1)
        await crew.hire()
        assert (await crew.client.recall(asked)).messages
