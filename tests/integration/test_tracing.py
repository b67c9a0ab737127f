"""Spans show a request's time, from its sender through the bus to the answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from formatters.model import Message
from service.app import make_worker, open_builder, open_bus
from service.builder import ContextBuilder
from service.config.settings import BusSettings, EventSettings, Settings
from service.errors import NoSummaryError
from service.observe.tracing import log_ignored_header
from service.ports.bus import Bus
from service.wire.protocol import Topics
from service.wire.request import BuildRequest
from service.worker.client import ContextClient, NoAnswerError, open_client
from service.worker.event_publisher import EventPublisher
from service.worker.spans import BusSpans
from tests.openings import Openings
from tests.serving import asking, working
from tests.support import BrokenHistory, row
from tests.tracing import Collected

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE}-{SPAN}-01"
SETTINGS = Settings(bus=BusSettings(url="memory://"), events=EventSettings(content=True))
PROCESS, SEND = "process context.build.request", "send context.build.request"


class Mute:
    """A summariser that has nothing to say."""

    name = "mute"

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Fail."""
        raise NoSummaryError("nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A worker on a bus in memory whose spans are collected, and two clients: one is traced."""

    collected: Collected
    bus: Bus
    builder: ContextBuilder
    plain: ContextClient
    traced: ContextClient

    async def answered(self, **fields: Any) -> dict[str, Any]:
        """Send a request of a plain client's; return the answer when all spans have ended."""
        response = await self.plain.send(asking(**fields))
        await self.ended()
        found: dict[str, Any] = json.loads(response.model_dump_json())
        return found

    async def ended(self, count: int = 1) -> None:
        """Wait until n requests are done with: their answers come a moment before."""
        async with asyncio.timeout(60):
            while sum(span.name == PROCESS for span in self.collected.spans) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Give a worker that takes requests."""
    collected = Collected()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        bus = (await enter(open_bus(SETTINGS))).bus
        opened = open_builder(SETTINGS, events=EventPublisher(bus), tracer=collected.tracer)
        builder = await enter(opened)
        spans = BusSpans(collected.tracer, SETTINGS.bus)
        scene = Scene(
            collected=collected,
            bus=bus,
            builder=builder,
            plain=await enter(open_client(bus, timeout_seconds=60)),
            traced=await enter(open_client(bus, timeout_seconds=60, spans=spans)),
        )
        await enter(working(make_worker(bus, builder), bus, asyncio.Event()))
        yield scene


@pytest.mark.parametrize("via", ["stream", "channel"])
async def test_a_request_is_one_trace_from_its_sender_to_the_answer(scene: Scene, via: Any) -> None:
    """Every part hangs below what led to it, over both ways in."""
    await scene.traced.send(asking(), via=via)
    await scene.ended()
    spans = [span for span in scene.collected.spans if not span.name.startswith("receive")]

    assert {span.name: scene.collected.above(span) for span in spans} == {
        "request context": None,
        SEND: "request context",
        PROCESS: SEND,
        "build context": PROCESS,
        "gather": "build context",
        "history": "gather",
        "fit": "build context",
        "render": "fit",
        "choose": "fit",
        "account": "fit",
        "record": PROCESS,
        "send context.reply.*": PROCESS,
    }
    assert len({scene.collected.ids(span)[0] for span in spans}) == 1
    kinds = {span.name: span.kind.name for span in spans}
    assert (kinds[SEND], kinds[PROCESS]) == ("PRODUCER", "CONSUMER")
    assert (kinds["send context.reply.*"], kinds["fit"]) == ("CLIENT", "INTERNAL")


async def test_the_answer_names_the_span_of_the_worker(scene: Scene) -> None:
    """Below the caller's, whose trace and state it goes on with."""
    answer = await scene.answered(metadata={"traceparent": CALLER, "tracestate": "vendor=1"})
    process = scene.collected.named(PROCESS)

    assert scene.collected.place(process) == (TRACE, SPAN)
    assert [format(link.context.span_id, "016x") for link in process.links] == [SPAN]
    built = scene.collected.ids(scene.collected.named("build context"))
    assert answer["metadata"]["traceparent"] == f"00-{TRACE}-{built[1]}-01"
    assert answer["metadata"]["tracestate"] == "vendor=1"


async def test_what_spans_report_has_the_names_of_the_field(scene: Scene) -> None:
    """Of messages, of models, and of ours what a context came to."""
    metadata = {"traceparent": CALLER, "correlation_id": "c-1"}
    content = {"current_input": "Hello", "context": {"model": "gpt-5"}}
    answer = await scene.answered(
        id="msg_1", content=content, metadata=metadata, conversation_id="talk"
    )
    process = dict(scene.collected.named(PROCESS).attributes or {})
    built = dict(scene.collected.named("build context").attributes or {})
    sent = dict(scene.collected.named("send context.reply.*").attributes or {})

    assert (
        process.items()
        >= {
            "messaging.system": "memory",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "context.build.request",
            "messaging.consumer.group.name": "context-builders",
            "messaging.message.id": "msg_1",
            "messaging.message.conversation_id": "c-1",
        }.items()
    )
    assert str(sent["messaging.destination.name"]).startswith("context.reply.")
    assert sent["messaging.destination.template"] == "context.reply.*"
    assert sent["messaging.destination.temporary"] is True
    usage = answer["content"]["usage"]
    assert (
        built.items()
        >= {
            "gen_ai.request.model": "gpt-5",
            "gen_ai.conversation.id": "talk",
            "contextbuilder.build_id": answer["content"]["build_id"],
            "contextbuilder.tokens.total": usage["total"],
            "contextbuilder.tokens.available": usage["available"],
            "contextbuilder.strategy": "oldest_first",
        }.items()
    )


async def test_a_batch_is_received_once_with_a_link_to_each(scene: Scene) -> None:
    """In a trace of its own: it belongs to none of the requests more than to another."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            said = {"traceparent": f"00-{TRACE}-{number + 1:016x}-01"}
            tasks.create_task(scene.plain.send(asking(id=f"msg_{number}", metadata=said)))
    await scene.ended(3)
    received = [each for each in scene.collected.spans if each.name.startswith("receive")]

    links = [link.context.span_id for each in received for link in each.links]
    counts = [
        int(str((each.attributes or {})["messaging.batch.message_count"])) for each in received
    ]
    assert sorted(links) == [1, 2, 3]
    assert counts == [len(each.links) for each in received]
    assert all(each.parent is None for each in received)


@pytest.mark.parametrize(
    "named",
    [
        "garbage",
        "00-" + "f" * 5_000,
        "",
        42,
        None,
        ["00"],
        {"version": "00"},
        "00-\ud800",
        f"00-{'0' * 32}-{SPAN}-01",
    ],
)
async def test_no_request_fails_for_its_trace(scene: Scene, named: Any) -> None:
    """For any value in its place, and in that of the state; it's logged once."""
    log_ignored_header.cache_clear()
    with capture_logs() as logs:
        for number in range(2):
            metadata = {"traceparent": named, "tracestate": named}
            sent = json.dumps(asking(id=f"msg_{number}", metadata=metadata)).encode()
            async with scene.bus.subscribe(Topics.CONTEXT_BUILD_RESPONSE) as responses:
                await scene.bus.submit(sent)
                async with asyncio.timeout(60):
                    answer = json.loads(await anext(responses))
            assert answer["content"]["status"] == "success"
            assert answer["metadata"]["traceparent"].startswith("00-")
    await scene.ended(2)

    reported = [line["key"] for line in logs if line["event"] == "trace.ignored"]
    assert len(reported) == len(set(reported))
    roots = [span for span in scene.collected.spans if span.name == PROCESS]
    assert [(span.parent, span.links) for span in roots] == [(None, ()), (None, ())]


async def test_an_error_marks_the_spans_that_it_ends(scene: Scene) -> None:
    """By its code; the parts that went well before it are not marked."""
    content = {"current_input": "x", "context": {"max_tokens": 2}}
    with capture_logs():
        await scene.traced.send(asking(content=content))
    await scene.ended()
    failed = {
        span.name: dict(span.attributes or {})["error.type"]
        for span in scene.collected.spans
        if span.status.status_code.name == "ERROR"
    }

    names = ("request context", PROCESS, "build context", "fit", "choose")
    assert failed == dict.fromkeys(names, "budget_exceeded")


async def test_an_answer_that_never_comes_marks_the_request(scene: Scene) -> None:
    """The sender sees so in his trace."""
    async with open_bus(SETTINGS) as alone:
        spans = BusSpans(scene.collected.tracer)
        async with open_client(alone.bus, spans=spans) as client:
            with pytest.raises(NoAnswerError):
                await client.send(asking(), timeout_seconds=0.01)
    (span,) = (each for each in scene.collected.spans if each.name == "request context")

    assert dict(span.attributes or {})["error.type"] == "no_answer"


async def test_a_store_that_fails_is_seen_where_it_failed(scene: Scene) -> None:
    """In the read and in the build; the parts behind it were never begun."""
    sources = replace(scene.builder.sources, history=BrokenHistory())
    request = BuildRequest.model_validate(asking(id="msg_1", run_id="run_1"))
    with capture_logs():
        await replace(scene.builder, sources=sources).answer(request)
    reported = {
        span.name: (span.attributes or {}).get("error.type") for span in scene.collected.spans
    }

    assert reported.pop("history") is None  # it degrades first, and is judged by its caller
    assert reported == {"gather": "history_unavailable", "build context": "history_unavailable"}


async def test_what_fell_out_is_reported_in_the_same_trace(scene: Scene) -> None:
    """Events name the span of the build that led to them."""
    said = [row(n, "ai" if n % 2 else "human", f"Secret number {n}. " * 40) for n in range(40)]
    await scene.builder.history.append("ana", said)
    content = {"current_input": "Hello", "context": {"max_tokens": 3_000}}
    async with scene.bus.subscribe(Topics.CONTEXT_PRUNED) as events:
        await scene.answered(
            content=content, metadata={"traceparent": CALLER, "tracestate": "vendor=1"}
        )
        async with asyncio.timeout(60):
            event = json.loads(await anext(events))
    (built,) = {
        scene.collected.ids(span) for span in scene.collected.spans if span.name == "build context"
    }

    assert event["metadata"]["traceparent"] == f"00-{TRACE}-{built[1]}-01"
    assert event["metadata"]["tracestate"] == "vendor=1"


@pytest.mark.parametrize("kind", ["list", "stream", "channel"])
async def test_every_kind_of_reply_carries_the_trace(scene: Scene, kind: str) -> None:
    """In the response itself, so that nobody has to know how it came."""
    reply_to = "context.reply.elsewhere"
    metadata = {"reply_to": reply_to, "reply_kind": kind, "traceparent": CALLER}
    async with scene.bus.subscribe(reply_to) as channel:
        await scene.bus.submit(json.dumps(asking(metadata=metadata)).encode())
        await scene.ended()
        if kind == "channel":
            reply = await anext(channel)
        else:
            (reply,) = scene.bus._hub.replies[reply_to].payloads  # type: ignore[attr-defined] # a look behind it

    assert json.loads(reply)["metadata"]["traceparent"].startswith(f"00-{TRACE}-")
    sent = dict(scene.collected.named("send context.reply.*").attributes or {})
    assert sent["contextbuilder.reply.kind"] == kind


async def test_a_retry_is_answered_in_its_own_trace(scene: Scene) -> None:
    """With the stored answer: nothing is built, and the trace says that too."""
    await scene.answered(id="msg_1", metadata={"traceparent": CALLER})
    again = await scene.plain.send(
        asking(id="msg_1", metadata={"traceparent": f"00-{'a' * 32}-{SPAN}-01"})
    )
    await scene.ended(2)

    assert str(again.metadata.traceparent).startswith(f"00-{'a' * 32}-")
    assert len([each for each in scene.collected.spans if each.name == "build context"]) == 1


async def test_spans_hold_nothing_that_anybody_said(scene: Scene) -> None:
    """Neither words nor owners nor secrets, in success and in failure."""
    secret = "hunter2-of-ana"
    said = [row(n, "ai" if n % 2 else "human", f"{secret} {n}") for n in range(6)]
    await scene.builder.history.append(f"owner-{secret}", said)
    content = {
        "current_input": secret,
        "user_profile": {"prompt_overrides": {"friends_profile": secret}},
        "context": {"blocks": {"MOOD": secret}, "explain": True},
    }
    tool = {"type": "function", "function": {"name": secret, "parameters": {"type": "object"}}}
    fields: dict[str, Any] = {
        "owner_key": f"owner-{secret}",
        "content": {**content, "tools": [tool]},
    }
    await scene.traced.send(asking(**fields))
    bad = {"current_input": secret, "context": {"strategy": secret}}
    with capture_logs():
        response = await scene.traced.send(asking(**{**fields, "content": bad}))
    await scene.ended(2)

    assert secret in response.model_dump_json()
    assert [span.name for span in scene.collected.spans if secret in span.to_json()] == []


@pytest.mark.parametrize("fails", [False, True])
async def test_a_summary_hangs_below_the_build_that_requested_it(fails: bool) -> None:
    """Though that was answered before; where there is none, the span says so."""
    collected = Collected()
    said = [row(n, ("HUMAN", "AI")[n % 2], f"words of message {n} " * 6) for n in range(40)]
    context = {"strategy": "summarization", "memory_tokens": 600, "memory_limit": None}
    asked = asking(content={"current_input": "Well?", "context": context})
    summarizer = Mute() if fails else Openings()
    with capture_logs():
        async with open_builder(
            Settings(), summarizer=summarizer, tracer=collected.tracer
        ) as builder:
            await builder.history.append("ana", said)
            await builder.build(BuildRequest.model_validate(asked))
    span = collected.named("summarize history")

    assert collected.above(span) == "build context"
    assert (span.attributes or {}).get("error.type") == ("NoSummaryError" if fails else None)
