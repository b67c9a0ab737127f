"""The worker on every bus: each request answered once, whatever happens to it."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from formatters.model import Block, Facts, Row
from service.adapters.memory.store import MemoryHistory, MemoryProfiles
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.aio import LARGE_TEXT
from service.app import make_worker
from service.audit.report_store import find_report
from service.build.gather import Sources
from service.builder import BLOCKS, ContextBuilder
from service.config.settings import (
    BusSettings,
    EventSettings,
    GatherSettings,
    MemorySettings,
    Settings,
    WorkerSettings,
)
from service.errors import (
    BudgetExceededError,
    BusError,
    ContextBuilderError,
    DeadlineExceededError,
    HistoryUnavailableError,
    IdConflictError,
    InvalidRequestError,
)
from service.ports.bus import Answer, AnswerOutcome, Bus, Delivery, Receipt
from service.ports.stores import HistoryPage
from service.wire.protocol import Topics
from service.worker import handler
from service.worker.client import ContextClient, NoAnswerError, NoWorkerError, open_client
from service.worker.runner import WAIT
from tests.integration.bus_places import Place
from tests.published import published
from tests.support import NOW, BrokenHistory, Noted, row

# the contract tests run on every server; here one real one is enough
pytestmark = pytest.mark.parametrize("place", ["memory", "redis"], indirect=True)

#: The tests' workers give up a lease quickly, so that another takes over.
LEASE = 0.6


@dataclass
class Crew:
    """Workers over one history, and a client of theirs."""

    place: Place
    stack: AsyncExitStack
    builder: ContextBuilder
    options: dict[str, Any]
    client: ContextClient
    bus: Bus
    stops: list[tuple[asyncio.Event, asyncio.Task[bool]]] = field(default_factory=list)

    async def hire(self, builder: ContextBuilder | None = None) -> None:
        """Start one more worker; it listens when this returns."""
        bus = await self.place.open(f"worker-{len(self.stops)}", **self.options)
        stop = asyncio.Event()
        task = asyncio.create_task(make_worker(bus, builder or self.builder).run(stop))
        self.stops.append((stop, task))
        await until(lambda: self._listeners(len(self.stops)))

    async def dismiss(self) -> list[bool]:
        """Stop all workers; returns whether each had finished its work."""
        for stop, _ in self.stops:
            stop.set()
        drained = [await task for _, task in self.stops]
        self.stops.clear()
        return drained

    async def stream(self, topic: str) -> list[dict[str, bytes]]:
        """Return the entries of a stream."""
        return await self.place.stream(f"{self.place.prefix}{topic}")

    async def _listeners(self, count: int) -> bool:
        # a payload that is no request costs only its dead letter
        return await self.bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"ping") >= count


async def until(holds: Callable[[], Awaitable[object]], seconds: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - what is waited for may be in another process
            await asyncio.sleep(0.02)


@asynccontextmanager
async def open_crew(place: Place, **settings: Any) -> AsyncIterator[Crew]:
    """Prepare a crew without workers."""
    bus_settings = {"lease_seconds": LEASE, "heartbeat_seconds": 0.1, "prefix": place.prefix}
    bus_settings |= settings.pop("bus", {})
    worker_settings = {"concurrency": 4, "shutdown_timeout_seconds": 30}
    worker_settings |= settings.pop("worker", {})
    tokenizers = TiktokenTokenizers()
    builder = ContextBuilder(
        sources=Sources(
            history=MemoryHistory(lambda: tokenizers.counter("o200k_base"), lambda: NOW),
            profiles=MemoryProfiles(),
            tools=InMemoryToolRegistry(),
        ),
        tokenizers=tokenizers,
        clock=lambda: NOW,
        metrics=Noted(),
        settings=Settings(
            bus=BusSettings(**bus_settings), worker=WorkerSettings(**worker_settings), **settings
        ),
    )
    options = {
        "lease_seconds": builder.settings.bus.lease_seconds,
        "max_backlog": builder.settings.bus.max_backlog,
    }
    async with AsyncExitStack() as stack:
        bus = await place.open("client", **options)
        client = await stack.enter_async_context(open_client(bus, timeout_seconds=60))
        crew = Crew(place, stack, builder, options, client, bus)
        try:
            yield crew
        finally:
            await crew.dismiss()


@pytest.fixture
async def crew(place: Place) -> AsyncIterator[Crew]:
    """Give a crew of one worker."""
    async with open_crew(place) as crew:
        await crew.hire()
        yield crew


def counted(crew: Crew) -> Counter[str]:
    """Return what the workers have counted."""
    assert isinstance(crew.builder.metrics, Noted)
    return Counter(crew.builder.metrics.counted)


def asking(text: str = "hi", /, **fields: Any) -> dict[str, Any]:
    """Return a request in the short form."""
    return {"owner_key": "o", "content": {"current_input": text}, **fields}


@dataclass
class Trouble:
    """A block that fails a number of times, and counts how often it was asked."""

    failures: int = 0
    asked: int = 0

    def __call__(self, facts: Facts) -> Block:
        """Fail, or show nothing much."""
        self.asked += 1
        if self.asked <= self.failures:
            raise RuntimeError("trouble")
        return Block(tag="TROUBLE", entries=(), placeholder="none")

    def joined(self, builder: ContextBuilder) -> ContextBuilder:
        """Return a builder that shows this block too."""
        return replace(builder, blocks=(*BLOCKS[:-1], self, BLOCKS[-1]))


@pytest.mark.parametrize("via", ["stream", "channel"])
async def test_a_request_is_answered(crew: Crew, via: Any) -> None:
    """Over both ways in."""
    content = await crew.client.build(asking("What now?"), via=via)

    assert len(content.messages) == 5
    assert "What now?" in content.messages[-1]["content"]


async def test_a_plain_response_goes_to_the_common_channel(crew: Crew) -> None:
    """Without a `reply_to`, everybody hears the response, as plain JSON with what ties it."""
    channel = f"{crew.place.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"
    async with crew.bus.subscribe(channel) as responses:
        metadata = {"correlation_id": "c-1", "traceparent": "00-ab-cd-01", "other": 1}
        await crew.bus.submit(json.dumps(asking(id="msg_1", metadata=metadata)).encode())
        async with asyncio.timeout(60):
            response = json.loads(await anext(responses))

    assert response["content"]["status"] == "success"
    assert response["metadata"] == {
        "request_id": "msg_1",
        "correlation_id": "c-1",
        "traceparent": "00-ab-cd-01",
    }


@pytest.mark.parametrize("kind", ["list", "stream"])
async def test_a_reply_can_wait_for_its_reader(crew: Crew, kind: str) -> None:
    """A list or a stream keeps the reply for who comes later."""
    reply_to = f"context.reply.{crew.place.prefix}"
    metadata = {"reply_to": reply_to, "reply_kind": kind}
    await crew.bus.submit(json.dumps(asking(metadata=metadata)).encode())
    await until(lambda: crew.place.replies(reply_to, kind))
    (reply,) = await crew.place.replies(reply_to, kind)

    assert json.loads(reply)["content"]["status"] == "success"


REFUSED_REPLIES: Sequence[tuple[Any, str]] = [
    ({"reply_to": "elsewhere.me"}, "/reply_to"),
    ({"reply_to": "elsewhere.me", "reply_kind": "list"}, "/reply_to"),
    ({"reply_kind": "list"}, "/reply_to"),
    ({"reply_to": "context.rep"}, "/reply_to"),
    ({"reply_to": "", "reply_kind": "stream"}, "/reply_to"),
    ({"reply_to": "context.reply." + "x" * 256}, "/reply_to"),
    ({"reply_to": "context.reply.list", "reply_kind": "LIST"}, "/reply_kind"),
    ({"reply_to": "context.reply.list", "reply_kind": 7}, "/reply_kind"),
    ("context.reply.list", ""),
]


@pytest.mark.parametrize(("metadata", "wrong"), REFUSED_REPLIES)
async def test_a_reply_goes_only_where_it_may(crew: Crew, metadata: Any, wrong: str) -> None:
    """Another place is refused on the common channel, and the corrected request is answered."""
    async with crew.bus.subscribe(common(crew)) as responses:
        await crew.bus.submit(json.dumps(asking(id="msg_1", metadata=metadata)).encode())
        refusal = await answer_to("msg_1", responses)
    corrected = await crew.client.send(asking(id="msg_1"))

    error = refusal["content"]["error"]
    assert error["code"] == "invalid_request"
    assert [problem["pointer"] for problem in error["errors"]] == [f"/metadata{wrong}"]
    assert corrected.content.status == "success"
    assert corrected.id != refusal["id"]


@pytest.mark.parametrize(
    ("metadata", "others"),
    [
        (metadata, others)
        for (metadata, _), others in zip(
            REFUSED_REPLIES, cycle([{}, {"role": 7}, {"schema_version": "2.0"}]), strict=False
        )
    ],
)
async def test_no_content_follows_a_refused_reply(
    crew: Crew, metadata: Any, others: dict[str, Any]
) -> None:
    """A retry of an answered id hears the refusal alone, whatever else is wrong with it."""
    first = await crew.client.send(asking(id="msg_1"))
    async with crew.bus.subscribe(common(crew)) as responses:
        retry = asking(id="msg_1", metadata=metadata, **others)
        await crew.bus.submit(json.dumps(retry).encode())
        refusal = await answer_to("msg_1", responses)
    again = await crew.client.send(asking(id="msg_1"))

    assert refusal["content"]["status"] == "error"
    assert (again.id, again.content) == (first.id, first.content)


def common(crew: Crew) -> str:
    """Return the channel of responses without another destination."""
    return f"{crew.place.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"


async def test_a_retry_gets_the_same_response(crew: Crew) -> None:
    """The same id and content, with the correlation id of the retry, and nothing is built again."""
    request = asking(id="msg_1")
    first = await crew.client.send(request)
    retry = {**request, "timestamp": "2025-12-10T09:00:00Z", "metadata": {"correlation_id": "c"}}
    again = [await crew.client.send(retry, via=via) for via in ("stream", "channel", "channel")]

    assert {response.id for response in again} == {first.id}
    assert all(response.content == first.content for response in again)
    assert {response.metadata.correlation_id for response in again} == {"c"}


async def test_a_retry_while_the_request_is_built_is_answered_too(place: Place) -> None:
    """Both get the one response, even if they named different destinations."""
    async with open_crew(place) as crew:
        other = await crew.stack.enter_async_context(open_client(crew.bus, timeout_seconds=60))
        request = asking(id="msg_1")
        sent = [asyncio.create_task(client.send(request)) for client in (crew.client, other) * 3]
        await asyncio.sleep(0)
        await crew.hire()
        await crew.hire()
        responses = [await each for each in sent]

    assert len({response.id for response in responses}) == 1
    assert all(response.content == responses[0].content for response in responses)


async def test_one_id_for_two_requests_is_a_conflict(crew: Crew) -> None:
    """The second one gets an error; a retry of the first still gets its answer."""
    first = await crew.client.send(asking("one", id="msg_1"))
    with pytest.raises(IdConflictError):
        await crew.client.build(asking("two", id="msg_1"))

    assert counted(crew)["build_requests id_conflict"] == 1
    assert (await crew.client.send(asking("one", id="msg_1"))).id == first.id


@pytest.mark.parametrize("wrong", [{"schema_version": "2.0"}, {"role": 7}])
async def test_a_request_is_built_once_its_error_is_corrected(
    crew: Crew, wrong: dict[str, Any]
) -> None:
    """Under its id, if a fingerprint doesn't cover what was wrong; and is refused again with it."""
    requests = [asking(id="msg_1", **more) for more in (wrong, {}, wrong)]
    refused, built, again = [await crew.client.send(request) for request in requests]

    assert [each.content.status for each in (refused, built, again)] == [
        "error",
        "success",
        "error",
    ]
    assert len({refused.id, built.id, again.id}) == 3


async def test_two_owners_may_use_one_id(crew: Crew) -> None:
    """Each gets an answer of its own."""
    one = await crew.client.send(asking("mine", id="msg_1", owner_key="a"))
    two = await crew.client.send(asking("yours", id="msg_1", owner_key="b"))

    assert one.id != two.id
    assert (one.owner_key, two.owner_key) == ("a", "b")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"current_input": ""}, InvalidRequestError),
        ({"a": 1}, InvalidRequestError),
        ({"current_input": "hi", "context": {"max_tokens": 500}}, BudgetExceededError),
    ],
)
async def test_a_request_that_cannot_be_built_gets_its_error(
    crew: Crew, content: dict[str, Any], error: type[ContextBuilderError]
) -> None:
    """The client raises the error of the code, and a retry gets the same response."""
    request = asking(id="msg_1", content=content)
    with pytest.raises(error) as caught:
        await crew.client.build(request)
    first, again = [await crew.client.send(request) for _ in range(2)]

    assert caught.value.detail
    assert first == again


async def test_a_deadline_that_has_passed_is_reported_and_not_stored(crew: Crew) -> None:
    """The error can be retried, and with more time the same request is built."""
    late = {"deadline": "2020-01-01T00:00:00Z"}
    with pytest.raises(DeadlineExceededError) as caught:
        await crew.client.build(asking(id="msg_1", metadata=late))
    assert caught.value.retryable

    assert (await crew.client.build(asking(id="msg_1"))).messages


async def test_a_deadline_without_a_zone_is_in_utc(crew: Crew) -> None:
    """As every naive time on the wire."""
    assert (await crew.client.build(asking(metadata={"deadline": "2999-01-01T00:00:00"}))).messages


async def test_a_deadline_ends_a_build_that_takes_too_long(place: Place) -> None:
    """A store that hangs does not hold the answer up."""
    patient = GatherSettings(history_timeout_seconds=30)
    async with open_crew(place, gather=patient) as crew:
        sources = replace(crew.builder.sources, history=BrokenHistory(hangs=True))
        await crew.hire(replace(crew.builder, sources=sources))
        with pytest.raises(DeadlineExceededError):
            await crew.client.build(asking(metadata={"timeout_ms": 200}))


async def test_unreadable_history_is_an_error_that_is_not_stored(place: Place) -> None:
    """Once the store is back, the same request is built."""
    async with open_crew(place) as crew:
        sources = replace(crew.builder.sources, history=BrokenHistory())
        await crew.hire(replace(crew.builder, sources=sources))
        with pytest.raises(HistoryUnavailableError):
            await crew.client.build(asking(id="msg_1"))
        await crew.dismiss()
        await crew.hire()
        assert (await crew.client.build(asking(id="msg_1"))).messages


@pytest.mark.parametrize(
    "payload", [b"\xff nonsense", rb'{"owner_key": "\ud800", "content": {"current_input": "hi"}}']
)
async def test_what_names_nobody_goes_to_the_dead_letter(crew: Crew, payload: bytes) -> None:
    """With the reason, and the worker goes on."""
    await crew.bus.submit(payload)

    async def buried() -> bool:
        dead = await crew.stream(Topics.CONTEXT_BUILD_DEAD)
        return any(entry["data"] == payload for entry in dead)

    await until(buried)
    assert (await crew.client.build(asking())).messages


async def test_who_forgot_the_owner_is_answered_where_it_listens(crew: Crew) -> None:
    """With the error, each time, and the same id belongs to nobody; nothing is dead."""
    reply_to = f"context.reply.{crew.place.prefix}"
    metadata = {"reply_to": reply_to, "reply_kind": "list"}
    for text in ("one", "two"):
        request = {"id": "msg_1", "content": {"current_input": text}, "metadata": metadata}
        await crew.bus.submit(json.dumps(request).encode())
    await until(lambda: replied(crew, reply_to, 2))
    responses = [json.loads(each) for each in await crew.place.replies(reply_to, "list")]

    for response in responses:
        assert not list(published("response").iter_errors(response))
        assert response["metadata"]["request_id"] == "msg_1"
        problem = {"pointer": "/owner_key", "detail": "is required"}
        assert response["content"]["error"]["errors"] == [problem]
    assert not [each for each in await dead_letters(crew) if b"msg_1" in each["data"]]
    assert (await crew.client.build(asking(id="msg_1"))).messages


async def test_who_sends_too_much_is_answered_where_it_listens(crew: Crew) -> None:
    """If its beginning says where; otherwise it is a dead letter. The id stays free."""
    reply_to = f"context.reply.{crew.place.prefix}"
    metadata = {"reply_to": reply_to, "reply_kind": "list"}
    content = {"current_input": "x" * crew.builder.settings.bus.max_payload_bytes}
    known = {"id": "msg_1", "owner_key": "o"}
    await crew.bus.submit(json.dumps({"content": content, **known}).encode())
    await crew.bus.submit(json.dumps({**known, "content": content}).encode())
    for given in (content, {"current_input": "shorter"}):
        request = {**known, "metadata": metadata, "content": given}
        await crew.bus.submit(json.dumps(request).encode())
    await until(lambda: replied(crew, reply_to, 2))
    answers = [json.loads(each) for each in await crew.place.replies(reply_to, "list")]

    refused, built = sorted(answers, key=lambda each: each["content"]["status"])
    assert not list(published("response").iter_errors(refused))
    assert refused["metadata"]["request_id"] == built["metadata"]["request_id"] == "msg_1"
    assert refused["content"]["error"]["code"] == "invalid_request"
    assert "4194304 are allowed" in refused["content"]["error"]["detail"]
    assert built["content"]["status"] == "success"
    large = [each["data"] for each in await dead_letters(crew) if each["data"] != b"ping"]
    assert sorted(payload[:7] for payload in large) == [b'{"conte', b'{"id": ']


async def replied(crew: Crew, reply_to: str, count: int) -> bool:
    """Return whether a list has this number of replies."""
    return len(await crew.place.replies(reply_to, "list")) == count


async def dead_letters(crew: Crew) -> list[dict[str, bytes]]:
    """Return the dead letters."""
    return await crew.stream(Topics.CONTEXT_BUILD_DEAD)


@pytest.mark.parametrize(
    "metadata", [{"reply_to": "elsewhere.me"}, {"reply_to": "context.reply.a", "reply_kind": "x"}]
)
async def test_without_an_owner_nothing_goes_to_a_place_that_is_not_allowed(
    crew: Crew, metadata: Mapping[str, str]
) -> None:
    """Nor to the common channel, where nobody could know whose error it is."""
    payload = json.dumps({"content": {"current_input": "hi"}, "metadata": metadata}).encode()
    common = f"{crew.place.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"
    async with crew.bus.subscribe(metadata["reply_to"]) as one, crew.bus.subscribe(common) as two:
        await crew.bus.submit(payload)

        async def is_dead() -> bool:
            return payload in [each["data"] for each in await dead_letters(crew)]

        await until(is_dead)
        for channel in (metadata["reply_to"], common):
            await crew.bus.publish_to(channel, b"end")
        assert [await anext(one), await anext(two)] == [b"end", b"end"]


@pytest.mark.parametrize(("url", "warned"), [("memory://", 1), ("sqlite:///history.db", 0)])
async def test_history_that_ends_with_the_worker_is_warned_of(
    place: Place, url: str, warned: int
) -> None:
    """The default store keeps nothing."""
    with capture_logs() as logged:
        async with open_crew(place, store={"url": url}) as crew:
            await crew.hire()

    assert [line["event"] for line in logged].count("store.in_memory") == warned


async def test_a_heartbeat_file_that_cannot_be_touched_costs_no_answer(
    place: Place, tmp_path: Path
) -> None:
    """It is logged once, and the file is touched as soon as that is possible."""
    file = tmp_path / "missing" / "beat"
    with capture_logs() as logged:
        async with open_crew(place, worker={"heartbeat_file": file}) as crew:
            await crew.hire()
            for number in range(3):
                assert (await crew.client.build(asking(id=f"msg_{number}"))).messages
            assert not file.exists()
            file.parent.mkdir()
            assert (await crew.client.build(asking(id="msg_3"))).messages
            await until(lambda: asyncio.to_thread(file.exists))

    assert [line["event"] for line in logged].count("worker.heartbeat_failed") == 1


@pytest.mark.parametrize("topic", [Topics.CONTEXT_BUILD_REQUEST, Topics.LLM_RESULTS])
async def test_an_entry_without_its_field_is_reported(crew: Crew, topic: str) -> None:
    """The dead letter and the log say that the entry has no field `data`."""
    with capture_logs() as logged:
        await crew.bus.append(topic, b"")  # buses read a field that isn't there like an empty one

        async def is_reported() -> bool:
            reasons = [each["reason"].decode() for each in await dead_letters(crew)]
            return any("no field `data`" in reason for reason in reasons)

        async def is_logged() -> bool:
            return any("no field `data`" in str(line.get("reason")) for line in logged)

        await until(is_reported)
        await until(is_logged)


@pytest.fixture
def faulty_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the decoding of payloads fail that begin with a word."""
    decode = handler.decode_request

    def faulty(payload: bytes, **options: Any) -> handler.AnyRequest:
        if payload.startswith(b"fault"):
            raise RuntimeError
        return decode(payload, **options)

    monkeypatch.setattr(handler, "decode_request", faulty)


async def test_a_refused_request_that_is_not_decoded_ends_no_worker(
    place: Place, faulty_decoding: None
) -> None:
    """Nobody hears of it."""
    async with open_crew(place, bus={"max_backlog": 1}) as crew:
        gate = Gate()
        await crew.hire(gate.joined(crew.builder))
        sent = [asyncio.create_task(crew.client.send(asking(str(n)))) for n in range(3)]
        await gate.reached.wait()
        with capture_logs() as logged:
            for _ in range(9):
                await crew.bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"fault")

            async def is_logged() -> bool:
                return any(line["event"] == "request.failed" for line in logged)

            await until(is_logged)
        gate.open.set()
        assert {(await each).content.status for each in sent} == {"success"}


@pytest.mark.parametrize("size", [1, LARGE_TEXT])
async def test_a_fault_of_decoding_ends_no_worker(
    crew: Crew, size: int, faulty_decoding: None
) -> None:
    """The entry is a dead letter, whatever its size, and other requests are answered."""
    await crew.bus.submit(b"fault" * size)

    async def is_reported() -> bool:
        reasons = [each["reason"].decode() for each in await dead_letters(crew)]
        return "could not be decoded: RuntimeError" in reasons

    await until(is_reported)
    assert (await crew.client.build(asking())).messages


async def test_a_build_that_fails_is_tried_again(place: Place) -> None:
    """A fault that passes costs time, no answer."""
    async with open_crew(place) as crew:
        trouble = Trouble(failures=2)
        await crew.hire(trouble.joined(crew.builder))

        assert (await crew.client.build(asking())).messages
        assert trouble.asked == 3


async def test_a_build_that_always_fails_ends_in_the_dead_letter(place: Place) -> None:
    """After the configured deliveries its sender gets an error, and others are not affected."""
    async with open_crew(place) as crew:
        trouble = Trouble(failures=1_000)
        await crew.hire(trouble.joined(crew.builder))
        with pytest.raises(ContextBuilderError, match="delivered 3 times") as caught:
            await crew.client.build(asking(id="msg_1"))
        dead = [
            json.loads(e["data"])
            for e in await crew.stream(Topics.CONTEXT_BUILD_DEAD)
            if e["data"] != b"ping"
        ]

        assert caught.value.code == "internal"
        assert trouble.asked == 3
        assert [entry["id"] for entry in dead] == ["msg_1"]
        assert (
            counted(crew)["dead_letters deliveries"]
            == counted(crew)["build_requests internal"]
            == 1
        )
        trouble.failures = 0
        assert (await crew.client.build(asking("another"))).messages


async def test_a_recall_is_refused_on_its_own_channel(place: Place) -> None:
    """Whatever it says: who waits there hears it."""
    async with open_crew(place, bus={"max_backlog": 1}) as crew:
        gate = Gate()
        await crew.hire(gate.joined(crew.builder))
        for number in range(3):
            await crew.bus.submit(json.dumps(asking(id=f"msg_{number}")).encode())
        common = f"{place.prefix}{Topics.CONTEXT_RECALL_RESPONSE}"
        async with crew.bus.subscribe(common) as responses:
            late = json.dumps(asking(id="msg_late", content={"query": 5})).encode()
            for _ in range(9):  # recalls wait in a stream of their own, too
                await crew.bus.publish(Topics.CONTEXT_RECALL_REQUEST, late)
            error = (await answer_to("msg_late", responses))["content"]["error"]
        gate.open.set()

    assert error["code"] == "overloaded"


@pytest.mark.parametrize("kind", ["channel", "list", "none"])
async def test_a_full_backlog_is_refused_at_the_channel(place: Place, kind: str) -> None:
    """The sender hears `overloaded` where it waits, or on the common channel; it may retry."""
    async with open_crew(place, bus={"max_backlog": 3}) as crew:
        gate = Gate()
        await crew.hire(gate.joined(crew.builder))
        for number in range(6):
            await crew.bus.submit(json.dumps(asking(id=f"msg_{number}")).encode())
        own = f"context.reply.{place.prefix}"
        metadata = {} if kind == "none" else {"reply_to": own, "reply_kind": kind}
        common = f"{place.prefix}{Topics.CONTEXT_BUILD_RESPONSE}"
        async with crew.bus.subscribe(own if kind == "channel" else common) as responses:
            late = json.dumps(asking(id="msg_late", metadata=metadata)).encode()
            await crew.bus.publish(Topics.CONTEXT_BUILD_REQUEST, late)
            error = (await answer_to("msg_late", responses))["content"]["error"]
        gate.open.set()

    assert error["code"] == "overloaded"
    assert error["retryable"] is True
    assert counted(crew)["build_requests overloaded"] == 1


async def answer_to(request_id: str, responses: AsyncIterator[bytes]) -> dict[str, Any]:
    """Return the first of the responses that answers a request."""
    async with asyncio.timeout(60):
        async for reply in responses:
            response: dict[str, Any] = json.loads(reply)
            if response["metadata"]["request_id"] == request_id:
                return response
    raise AssertionError("the channel ended")


async def test_started_requests_are_finished_when_a_worker_is_stopped(place: Place) -> None:
    """It drains, and leaves nothing pending behind."""
    async with open_crew(place) as crew:
        sent = [asyncio.create_task(crew.client.send(asking(str(n)))) for n in range(40)]
        await asyncio.sleep(0)
        await crew.hire()
        drained = await crew.dismiss()
        await crew.hire()
        responses = [await each for each in sent]

    assert drained == [True]
    assert len({response.id for response in responses}) == 40


async def test_a_claim_in_flight_is_drained(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker claims while it is stopped, it answers."""
    async with open_crew(place) as crew:
        dead = await place.open("dead", **crew.options)
        sent = asyncio.create_task(crew.client.send(asking("left behind")))
        await until(lambda: dead.requests.receive(1, wait=0.1))
        claiming, claim = asyncio.Event(), type(crew.bus.requests).claim

        async def slow(inbox: Any, slots: int, **options: bool) -> list[Delivery]:
            claimed: list[Delivery] = await claim(inbox, slots, **options)
            if claimed:
                claiming.set()
                await asyncio.sleep(2 * WAIT)  # longer than a read of new requests
            return claimed

        monkeypatch.setattr(type(crew.bus.requests), "claim", slow)
        await crew.hire()
        async with asyncio.timeout(60):
            await claiming.wait()
            assert await crew.dismiss() == [True]
        assert (await sent).content.status == "success"


async def test_a_worker_that_cannot_drain_says_so(place: Place) -> None:
    """What it leaves is answered by another."""
    async with open_crew(place) as crew:
        settings = crew.builder.settings.model_copy(
            update={"worker": WorkerSettings(concurrency=1, shutdown_timeout_seconds=0)}
        )
        trouble = Gate()
        await crew.hire(replace(trouble.joined(crew.builder), settings=settings))
        sent = asyncio.create_task(crew.client.send(asking()))
        worker = crew.stops[0]
        await trouble.reached.wait()
        assert await crew.dismiss() == [False]
        assert worker[1].done()
        await crew.hire()
        assert (await sent).content.status == "success"


async def test_claims_and_reads_together_stay_within_the_slots(place: Place) -> None:
    """A worker of one slot that takes over and reads at once answers both, and can be stopped."""
    async with open_crew(place) as crew:
        dead = await place.open("dead", **crew.options)
        sent = [asyncio.create_task(crew.client.send(asking("left behind")))]
        await until(lambda: dead.requests.receive(1, wait=0.1))
        one_slot = crew.builder.settings.model_copy(
            update={"worker": WorkerSettings(concurrency=1, shutdown_timeout_seconds=30)}
        )
        trouble = Gate()
        await crew.hire(replace(trouble.joined(crew.builder), settings=one_slot))
        await trouble.reached.wait()
        sent += [asyncio.create_task(crew.client.send(asking(str(n)))) for n in range(3)]
        await until(lambda: _holds(crew, 4))
        trouble.open.set()
        responses = [await each for each in sent]
        async with asyncio.timeout(60):
            assert await crew.dismiss() == [True]

    assert len({response.id for response in responses}) == 4


async def test_large_requests_are_built_one_after_the_other(place: Place) -> None:
    """A small one passes them in their last slot, and no worker takes over those that wait."""
    async with open_crew(place) as crew:
        worker = WorkerSettings(concurrency=3, max_inflight_bytes=100_000)
        settings = crew.builder.settings.model_copy(update={"worker": worker})
        gate = Gate()
        await crew.hire(replace(gate.joined(crew.builder), settings=settings))
        sent = [asyncio.create_task(crew.client.send(asking("x" * 60_000))) for _ in range(3)]
        await gate.reached.wait()
        sent.append(asyncio.create_task(crew.client.send(asking("small"))))
        await until(lambda: _reads(gate, 2))
        await crew.hire()
        await asyncio.sleep(2 * LEASE)
        assert gate.waiting == 2
        gate.open.set()
        responses = [await each for each in sent]

    assert len({response.id for response in responses}) == 4
    assert not [name for name in counted(crew) if name.startswith("duplicate")]


async def _reads(gate: "Gate", builds: int) -> bool:
    return gate.waiting >= builds


async def test_what_others_left_precedes_what_is_new(place: Place) -> None:
    """A worker that never runs out of new requests takes over those of a dead one all the same."""
    async with open_crew(place) as crew:
        dead = await place.open("dead", **crew.options)
        metadata = {"reply_to": f"context.reply.{place.prefix}", "reply_kind": "list"}

        async def ask(number: int) -> None:
            request = asking(id=f"msg_{number}", metadata=metadata)
            await crew.bus.submit(json.dumps(request).encode())

        await ask(0)
        await until(lambda: dead.requests.receive(1, wait=0.1))
        for number in range(1, 30):
            await ask(number)
        one_slot = crew.builder.settings.model_copy(
            update={"worker": WorkerSettings(concurrency=1)}
        )
        sources = replace(crew.builder.sources, history=SlowHistory(2 * LEASE / 30))
        await crew.hire(replace(crew.builder, settings=one_slot, sources=sources))

        async def replies() -> list[bytes]:
            return await place.replies(metadata["reply_to"], "list")

        async def all_replied() -> bool:
            return len(await replies()) == 30

        await until(all_replied)
        order = [json.loads(reply)["metadata"]["request_id"] for reply in await replies()]

    assert order[-1] != "msg_0"


class SlowHistory(BrokenHistory):
    """An empty history that takes a while to read."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def recent(self, *_args: object, **_options: object) -> HistoryPage:
        """Wait, and return nothing."""
        await asyncio.sleep(self._seconds)
        return HistoryPage()

    async def append(self, *_args: object, **_options: object) -> int:
        """Store nothing, but say so."""
        return 1


async def _holds(crew: Crew, entries: int) -> bool:
    return len(await crew.stream(Topics.CONTEXT_BUILD_REQUEST)) >= entries


@dataclass
class Gate:
    """A history that can't be read until it is opened."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set once a build waits for it.
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    #: Builds that have reached it.
    waiting: int = 0

    def joined(self, builder: ContextBuilder) -> ContextBuilder:
        """Return a builder whose reads wait for this."""
        gated = GatedHistory(self)
        return replace(builder, sources=replace(builder.sources, history=gated))


class GatedHistory(BrokenHistory):
    """A history behind a gate: empty, once it is open."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def recent(self, *_args: object, **_options: object) -> HistoryPage:
        """Wait, and return nothing."""
        self._gate.reached.set()
        self._gate.waiting += 1
        await self._gate.open.wait()
        return HistoryPage()

    async def rows(self, *_args: object, **_options: object) -> list[Row]:
        """Find nothing."""
        return []

    async def append(self, *_args: object, **_options: object) -> int:
        """Take a row, and forget it."""
        return 1


async def test_the_input_is_remembered(crew: Crew) -> None:
    """The next request of the owner finds it in its history."""
    await crew.client.build(asking("My cat is called Tibert."))
    content = await crew.client.build(asking("What is my cat called?"))

    assert "Human: My cat is called Tibert." in content.messages[2]["content"]
    assert "count=1]" in content.messages[2]["content"]


async def test_an_input_that_is_not_remembered_is_reported(crew: Crew) -> None:
    """The response warns where the id that was given to the input is another row's."""
    await crew.builder.history.append("o", [row(1, "AI", "another row", id="mine")])
    history = [{"id": "mine", "content": "My cat is called Tibert."}]
    content = await crew.client.build({"owner_key": "o", "content": {"history": history}})

    assert [warning.code for warning in content.warnings] == ["input_not_stored"]
    assert await remembered(crew, 1)


async def test_a_retry_after_an_upgrade_changes_nothing(crew: Crew) -> None:
    """What an older version stored of a request belongs to it, and isn't stored or shown again."""
    for number, (name, role) in enumerate((("in_1", "HUMAN"), ("a", "AI"))):
        fields = {"id": name, "run_id": "run_1"}
        await crew.builder.history.append("o", [row(number, role, "Where is my cat?", **fields)])
    content = await crew.client.build(asking("Where is my cat?", id="msg_1"))
    other = await crew.client.build(asking("Where is my dog?", id="1"))

    assert "count=0]" in content.messages[2]["content"]
    assert "count=2]" in other.messages[2]["content"]
    assert await remembered(crew, 3)


async def test_results_on_the_bus_are_remembered(crew: Crew) -> None:
    """An LLM's answer and a tool's result join the run; a replay changes nothing."""
    await crew.client.build(asking("Weather?", run_id="run_1"))
    call = {"id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
    rows: list[tuple[str, dict[str, Any]]] = [
        (
            Topics.LLM_RESULTS,
            {"id": "a1", "role": "AI", "content": "", "metadata": {"tool_calls": [call]}},
        ),
        (
            Topics.TOOLS_RESULTS,
            {
                "id": "t1",
                "role": "TOOL",
                "content": "rain",
                "metadata": {"tool_call_id": "c1", "name": "weather"},
            },
        ),
        (Topics.LLM_RESULTS, {"id": "a2", "role": "ai", "content": "It rains."}),
    ]
    for topic, fields in rows * 2:
        row = {"owner_key": "o", "run_id": "run_1", **fields}
        await crew.bus.append(topic, json.dumps(row).encode())
    await until(lambda: remembered(crew, 4))
    content = await crew.client.build(asking("And tomorrow?"))

    assert content.messages[2]["content"].endswith(
        "Human: Weather?\n  Nexus:\n[tool_use:weather, city:Oslo]\nIt rains."
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"nonsense",
        b"{}",
        b'{"owner_key": "o", "role": "AI"}',
        b'{"id": "a", "owner_key": "o", "role": "HUMAN"}',
        b'{"id": "a", "owner_key": "o"}',
        rb'{"id": "a", "owner_key": "o\ud800", "role": "AI"}',
    ],
)
async def test_a_result_that_is_none_goes_to_the_dead_letter(crew: Crew, payload: bytes) -> None:
    """And the recorder goes on."""
    await crew.bus.append(Topics.LLM_RESULTS, payload)
    good = {"id": "a1", "owner_key": "o", "role": "AI", "content": "fine"}
    await crew.bus.append(Topics.LLM_RESULTS, json.dumps(good).encode())
    await until(lambda: remembered(crew, 1))
    dead = await crew.stream(Topics.CONTEXT_BUILD_DEAD)

    assert payload in [entry["data"] for entry in dead]


async def test_rows_of_all_roles_can_be_imported_over_the_bus(crew: Crew) -> None:
    """Each once, under its id, for its owner and conversation; chat messages are rows, too."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is the key?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a pot"},
        {"role": "ASSISTANT", "content": "Under the pot."},
    ]
    for number, message in enumerate(messages * 2):
        names = {"id": f"trip_{number % 4}", "owner_key": "o", "conversation_id": "trip"}
        row = json.dumps({**message, **names}).encode()
        await crew.bus.append(Topics.HISTORY_IMPORT, row)
    await until(lambda: remembered(crew, 4))
    content = await crew.client.build(asking("Which pot?", conversation_id="trip"))
    others = await crew.client.build(asking("Which pot?", conversation_id="other"))

    said = content.messages[2]["content"]
    assert "Human: Where is the key?" in said
    assert "[tool_use:find]" in said
    assert "Under the pot." in said
    assert "key" not in others.messages[2]["content"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"id": None}, "/id: "),
        ({"owner_key": ""}, "/owner_key: "),
        ({"role": "system"}, "/role: Input should be 'human', 'user', 'ai', 'assistant' or 'tool'"),
        ({"timestamp": "yesterday"}, "/timestamp: must be a time in ISO 8601"),
        ({"content": 7}, "/content"),
    ],
)
async def test_an_imported_row_that_is_none_is_a_dead_letter(
    crew: Crew, fields: Mapping[str, object], reason: str
) -> None:
    """With the place of its problem."""
    row = {"id": "a", "owner_key": "o", "role": "user", "content": "hi", **fields}
    await crew.bus.append(Topics.HISTORY_IMPORT, json.dumps(row).encode())

    async def is_dead() -> bool:
        return any(each["reason"].decode().startswith(reason) for each in await dead_letters(crew))

    await until(is_dead)
    assert await remembered(crew, 0)


async def remembered(crew: Crew, count: int) -> bool:
    """Return whether the owner's history has n rows."""
    return len(await crew.builder.history.get_history("o", limit=100)) == count


async def test_the_recorder_can_be_switched_off(place: Place) -> None:
    """Then nothing is written, and results stay on their streams."""
    async with open_crew(place, recorder={"enabled": False}) as crew:
        await crew.hire()
        await crew.client.build(asking())
        assert await remembered(crew, 0)


async def test_a_client_without_a_worker_is_reported(place: Place) -> None:
    """On the channel at once, on the stream after its timeout; there the request waits."""
    async with open_crew(place) as crew:
        with pytest.raises(NoWorkerError):
            await crew.client.build(asking(), via="channel")
        request = asking(id="msg_1", metadata={"timeout_ms": 60_000})
        with pytest.raises(NoAnswerError):
            await crew.client.build(request, timeout_seconds=0.1)
        await crew.hire()
        assert (await crew.client.build(request)).messages


async def test_many_requests_at_once_are_answered_by_several_workers(place: Place) -> None:
    """Three workers, both ways in, each request once."""
    async with open_crew(place) as crew:
        for _ in range(3):
            await crew.hire()
        requests = [asking(str(n), id=f"msg_{n}", owner_key=f"o{n % 7}") for n in range(60)]
        sent = [
            crew.client.send(request, via="channel" if n % 2 else "stream")
            for n, request in enumerate(requests)
        ]
        responses = await asyncio.gather(*sent)

    assert len({response.id for response in responses}) == 60
    assert all(response.content.status == "success" for response in responses)


async def test_a_build_leaves_its_report_on_the_bus(place: Place) -> None:
    """What the context was made of can be found by its build id, also after the worker's end."""
    async with open_crew(place) as crew:
        await crew.hire()
        content = await crew.client.build(asking("What now?", id="msg_1"))
        await crew.dismiss()
        found = await find_report(crew.bus.reports, content.build_id)

    assert found is not None
    assert found.request.id == "msg_1"
    assert len(found.messages) == len(content.messages)


async def test_reports_that_cannot_be_stored_cost_no_answer(place: Place) -> None:
    """The answers come, and the worker goes on."""
    async with open_crew(place) as crew:
        bus = await crew.place.open("worker", **crew.options)
        bus.reports.put = no_room  # type: ignore[method-assign]
        stop = asyncio.Event()
        task = asyncio.create_task(make_worker(bus, crew.builder).run(stop))
        for number in range(2):
            assert (await crew.client.build(asking(id=f"msg_{number}"))).messages
        stop.set()
        assert await task


async def no_room(reports: Mapping[str, bytes], ttl_seconds: float) -> None:
    """Fail as a bus does."""
    raise BusError("no room")


async def test_answer_that_fails_takes_nothing_from_others(place: Place) -> None:
    """Those next to it keep their reports and events; it is built again and answered then."""
    async with open_crew(place, memory=MemorySettings(limit=1)) as crew:
        bus = await crew.place.open("worker", **crew.options)
        bus.finish = spoiled(bus.finish, "msg_1")  # type: ignore[assignment, method-assign]
        owners = [f"o{number}" for number in range(3)]
        for owner in owners:
            rows = [row(number, "human", f"said {number}") for number in range(2)]
            await crew.builder.history.append(owner, rows)
        requests = [asking(owner_key=each, id=f"msg_{n}") for n, each in enumerate(owners)]
        async with crew.bus.subscribe(f"{place.prefix}{Topics.CONTEXT_PRUNED}") as heard:
            waiting = asyncio.gather(*map(crew.client.send, requests))
            stop = asyncio.Event()
            task = asyncio.create_task(make_worker(bus, crew.builder).run(stop))
            responses = await waiting
            events = [json.loads(await anext(heard)) for _ in owners]
            stop.set()
            await task
        builds = [each.content.build_id for each in responses if each.content.status == "success"]
        reports = await crew.bus.reports.existing(builds)

    assert len(reports) == 3
    assert {each["owner_key"] for each in events} == set(owners)
    assert counted(crew)["duplicates_suppressed lease_lost"] == 0


Finish = Callable[[Sequence[Answer]], Coroutine[Any, Any, list[Receipt]]]


def spoiled(finish: Finish, bad: str) -> Finish:
    """Fail at the first delivery of one request, whatever else is in the batch."""

    async def failing(answers: Sequence[Answer]) -> list[Receipt]:
        fails = [each.identity.id == bad and each.delivery.attempt == 1 for each in answers]
        good = await finish([each for each, fail in zip(answers, fails, strict=True) if not fail])
        receipts = iter(good)
        failed = Receipt(outcome=AnswerOutcome.FAILED, error=BusError("at fault"))
        return [failed if fail else next(receipts) for fail in fails]

    return failing


async def test_rows_that_fall_out_are_reported_once(place: Place) -> None:
    """Over the bus, by whichever worker comes first, as its schema has it; and archived."""
    schema = published("context_pruned")
    events = EventSettings(archive=True, content=True)
    async with open_crew(place, memory=MemorySettings(limit=2), events=events) as crew:
        for _ in range(2):
            await crew.hire()
        rows = [row(number, "human", f"said {number}") for number in range(4)]
        await crew.builder.history.append("o", rows)
        reported: list[dict[str, Any]] = []
        async with crew.bus.subscribe(f"{place.prefix}{Topics.CONTEXT_PRUNED}") as heard:
            first = await crew.client.build(asking("What now?", id="msg_1"))
            reported.append(json.loads(await anext(heard)))
            for number in range(8):  # what these record falls out in its turn
                await crew.client.build(asking("And now?", id=f"msg_again_{number}"))
            while sum(event["content"]["removed"] for event in reported) < 10:
                reported.append(json.loads(await anext(heard)))
            await crew.dismiss()
        copies = await crew.builder.history.archived("o", 99)

    for event in reported:
        schema.validate(event)
    names = [name for event in reported for name in event["content"]["removed_messages"]]
    assert len(names) == len(set(names))
    assert {copy.row["id"] for copy in copies} >= set(names)
    assert reported[0]["metadata"]["build_id"] == first.build_id
    assert reported[0]["metadata"]["request_id"] == "msg_1"
    assert reported[0]["content"]["removed_messages"] == ["m0", "m1"]
    assert [each["content"] for each in reported[0]["content"]["rows"]] == ["said 0", "said 1"]
