"""What one owner has is nobody else's: one test, over every route and every topic there is."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import redis.asyncio as redis

from formatters.handles import make_handle
from formatters.model import Row
from service.adapters.redis.shards import Shard
from service.app import connect_client, make_worker, open_builder, open_bus
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.http.endpoint import Endpoint
from service.http.health import open_health
from service.http.interface import Served, open_http
from service.http.prometheus import PrometheusMetrics
from service.http.routes import ENDPOINTS
from service.ports.bus import Bus, Identity
from service.wire.documents import asyncapi_document
from service.wire.protocol import Topics
from service.worker.event_publisher import EventPublisher
from tests.integration.bus_places import until
from tests.serving import working
from tests.support import row

pytestmark = pytest.mark.integration

#: Is in everything of ana's: a text with it contains her data.
SECRET: Final = "the-treasure-lies-under-the-oak"
#: Under this nobody has room for a history of 40 rows; older ones are summarised.
TIGHT: Final = {"strategy": "summarization", "memory_tokens": 800, "memory_limit": None}
#: Ids that both owners use, so that only the owner distinguishes their data.
SHARED: Final = {"run_id": "run_1", "conversation_id": "trip"}
#: The bodies that bob sends to routes that take one, with ids of her requests and rows.
BODIES: Final[Mapping[str, Any]] = {
    "recall": {"owner_key": "bob", "id": "recalled", **SHARED, "content": {"ids": ["m1", "m7"]}},
    "build": {"owner_key": "bob", "id": "q3", **SHARED, "content": {"current_input": "What now?"}},
    "what_if": {"memory_limit": None, "max_tokens": 100_000},
    "preview_pruning": {"target_tokens": 0, "conversation_id": "trip"},
    "prune": {"ids": ["m1", "m2"]},
    "undo_pruning": {"ids": ["m3"]},
    "import_history": {"rows": [{"id": "m1", **SHARED, "role": "user", "content": "bob's own"}]},
}


@dataclass(kw_only=True)
class Stage:
    """A worker with everything that it serves, and what bob sees of it."""

    settings: Settings
    bus: Bus
    client: redis.Redis
    builder: ContextBuilder
    served: Served
    http: httpx2.AsyncClient
    health: str
    #: Build ids of ana's.
    builds: list[str] = field(default_factory=list)
    sent: int = 0

    def topic(self, topic: str) -> str:
        """Return the name of a topic on this bus."""
        return f"{self.settings.bus.prefix}{topic}"

    def request(self, owner: str, text: str, **changes: Any) -> dict[str, Any]:
        """Return a request with the ids that both use, but for its own."""
        self.sent += 1
        metadata = changes.pop("metadata", {})
        content = {"current_input": text, "context": changes.pop("context", {})}
        content = changes.pop("content", content)
        ids = {"id": f"q{self.sent}", **SHARED, **changes}
        return {"owner_key": owner, **ids, "content": content, "metadata": metadata}

    async def submitted(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Put a request into the stream, and return its response on the common channel."""
        async with self.bus.subscribe(self.topic(Topics.CONTEXT_BUILD_RESPONSE)) as responses:
            await self.bus.submit(json.dumps(request).encode())
            return await answer_to(request, responses)


#: Does on a path what bob can do there, and returns all that he hears and reads.
Act = Callable[[Stage], Awaitable[object]]


@asynccontextmanager
async def stage_of(url: str, prefix: str, folder: Path) -> AsyncIterator[Stage]:
    """Serve everything there is, with all that may be shown switched on."""
    settings = Settings.model_validate(
        {
            "bus": {"url": url, "prefix": prefix, "result_ttl_seconds": 600},
            "store": {"url": f"sqlite:///{folder / 'history.db'}"},
            "http": {"port": 0, "content": "full"},
            "events": {"content": True, "archive": True},
        }
    )
    stop, metrics = asyncio.Event(), PrometheusMetrics("sqlite")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        bus = (await enter(open_bus(settings))).bus
        events = EventPublisher(bus, metrics)
        builder = await enter(open_builder(settings, events=events, metrics=metrics))
        asks = await enter(connect_client(settings, bus))
        served = await enter(open_http(0, bus, builder, asks.exchange))
        worker = make_worker(bus, builder, served.recent)
        await enter(working(worker, bus, stop))
        yield Stage(
            settings=settings,
            bus=bus,
            client=await enter(redis.Redis.from_url(url)),
            builder=builder,
            served=served,
            # a proxy of the environment doesn't reach our own addresses
            http=await enter(
                httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=60)
            ),
            health=await enter(open_health(settings, 0, bus, worker, metrics)),
        )


async def furnish(stage: Stage, owner: str, words: str) -> None:
    """Give an owner rows, a pruned one, a profile, a summary, and builds that are kept."""
    rows: list[Row] = [row(n, ("HUMAN", "AI")[n % 2], f"{words} {n}. " * 3) for n in range(40)]
    await stage.builder.history.append(owner, rows, conversation_id="trip")
    await stage.builder.history.prune(owner, ["m3"])
    profile = {"prompt_overrides": {"friends_profile": words}}
    await stage.builder.sources.profiles.put(owner, profile)
    for context in (TIGHT, {"explain": True}, {}):
        last = stage.served.recent.last
        response = await stage.submitted(stage.request(owner, f"{words}?", context=context))
        assert response["content"]["status"] == "success"
        stage.builds.append(response["content"]["build_id"])
        await until(partial(newer, stage, last))
    summaries = stage.builder.sources.summaries
    assert summaries
    await until(lambda: summaries.read(owner, "trip"))


async def newer(stage: Stage, last: int) -> bool:
    """Say whether a build can be shown that could not."""
    return stage.served.recent.last > last


async def answer_to(request: Mapping[str, Any], responses: AsyncIterator[bytes]) -> dict[str, Any]:
    """Return the response to a request of an owner, of all that come."""
    async with asyncio.timeout(60):
        while True:
            response: dict[str, Any] = json.loads(await anext(responses))
            whose = response["owner_key"], response["metadata"]["request_id"]
            if whose == (request["owner_key"], request["id"]):
                return response


# --- what bob does on topics -------------------------------------------------------------------


async def by_the_stream(stage: Stage) -> object:
    """Ask with every id of hers: of the request, the run, the conversation and the rows."""
    past = [{"id": "m1", "run_id": "r1", "role": "HUMAN", "content": "mine"}]
    asked: list[dict[str, Any]] = [
        stage.request("bob", "What was said?", id="q1"),
        stage.request("bob", "What was said?", context={"scope": "owner", "memory_limit": None}),
        stage.request("bob", "What was said?", context={"past": past}),
        stage.request("bob", SECRET.replace("-", " "), context={"strategy": "relevance"}),
    ]
    return [await stage.submitted(each) for each in asked]


async def by_the_channel(stage: Stage) -> object:
    """The same request over the channel, also as a retry of one that was hers."""
    asked = stage.request("bob", "What was said?", id="q2")
    async with stage.bus.subscribe(stage.topic(Topics.CONTEXT_BUILD_RESPONSE)) as responses:
        heard = []
        for _ in range(2):
            await stage.bus.publish(Topics.CONTEXT_BUILD_REQUEST, json.dumps(asked).encode())
            heard.append(await answer_to(asked, responses))
    return heard


async def on_the_common_channel(stage: Stage) -> object:
    """An answer and a refusal to bob, as everybody hears them."""
    bad = stage.request("bob", "Hello", context={"strategy": "of ana"})
    return [await stage.submitted(stage.request("bob", "Hello")), await stage.submitted(bad)]


async def by_replies(stage: Stage) -> object:
    """Replies of each kind, where bob may have them, and where her answers are kept."""
    seen: list[object] = []
    for kind in ("list", "stream", "channel"):
        place = f"context.reply.{stage.settings.bus.prefix}bob.{kind}"
        asked = stage.request(
            "bob", "What was said?", metadata={"reply_to": place, "reply_kind": kind}
        )
        if kind == "channel":
            async with stage.bus.subscribe(place) as replies:
                await stage.bus.submit(json.dumps(asked).encode())
                seen.append(await answer_to(asked, replies))
            continue
        await stage.bus.submit(json.dumps(asked).encode())
        seen.append(await until(partial(replied, stage, place, kind)))
    hers = Shard(stage.settings.bus.prefix).result(Identity("ana", "q1"))
    assert await stage.client.get(hers)
    for kind in ("list", "stream", "channel"):
        metadata = {"reply_to": hers, "reply_kind": kind}
        refused = await stage.submitted(stage.request("bob", "Hello", metadata=metadata))
        assert refused["content"]["error"]["errors"][0]["pointer"] == "/metadata/reply_to"
        seen.append(refused)
    return seen


#: Recalls by which bob looks for what is hers: by words, ids, handles and places.
RECALLS: Final[Sequence[Mapping[str, Any]]] = (
    {"query": "Where does the treasure lie?"},
    {"ids": ["m1", "m3", "m7", make_handle("m7")]},
    {"around": "m7", "before": 9},
    {"grep": "treasure"},
)


def by_recalls(send: Callable[[Stage, str, bytes], Awaitable[object]], topic: str) -> Act:
    """Recall with the ids of her rows and builds, as a request that was hers too."""

    async def act(stage: Stage) -> object:
        seen: list[object] = []
        async with stage.bus.subscribe(stage.topic(Topics.CONTEXT_RECALL_RESPONSE)) as responses:
            for content in RECALLS:
                for more in ({}, {"exclude_build": stage.builds[0]}, {"max_tokens": 9_000}):
                    asked = stage.request("bob", "", content={**content, **more})
                    await send(stage, topic, json.dumps(asked).encode())
                    answer = await answer_to(asked, responses)
                    # the words of the request are bob's own
                    answer["content"].pop("next", None)
                    seen.append(str(answer).replace(stage.builds[0], ""))
        return seen

    return act


async def submit_to(stage: Stage, topic: str, payload: bytes) -> object:
    """Put a payload into a stream."""
    return await stage.bus.append(topic, payload)


async def publish_on(stage: Stage, topic: str, payload: bytes) -> object:
    """Say a payload on a channel."""
    return await stage.bus.publish(topic, payload)


async def replied(stage: Stage, place: str, kind: str) -> Any:
    """Return what is in a list or a stream."""
    if kind == "list":
        found: Any = stage.client.lrange(place, 0, -1)
        return await found
    return await stage.client.xrange(place)


def by_results(topic: str, role: str) -> Act:
    """Write rows under the ids of hers: they become bob's, and hers stay."""

    async def act(stage: Stage) -> object:
        hers = await stage.builder.history.rows("ana", ["m1"])
        fields = {"id": "m1", "owner_key": "bob", "role": role, "content": "said by bob"}
        await stage.bus.append(topic, json.dumps({**SHARED, **fields}).encode())
        last = f"last-{role}"
        marked = {**SHARED, **fields, "id": last, "metadata": {"tool_call_id": "c1"}}
        await stage.bus.append(topic, json.dumps(marked).encode())
        rows = await until(lambda: stage.builder.history.rows("bob", [last]))
        assert await stage.builder.history.rows("ana", ["m1"]) == hers
        assert await stage.builder.history.rows("ana", [last]) == []
        return [rows, await stage.submitted(stage.request("bob", "What was said?"))]

    return act


def by_events(topic: str) -> Act:
    """Collect the events when bob's history no longer fits, in a conversation named like hers."""

    async def act(stage: Stage) -> object:
        # a conversation of his own, which nothing has fallen out of
        mine = f"of {topic}"
        rows = [
            {**row(n, ("HUMAN", "AI")[n % 2], f"Bob said {n}. " * 6), "id": f"{topic}-{n}"}
            for n in range(40)
        ]
        await stage.builder.history.append("bob", rows, conversation_id=mine)
        asked = stage.request("bob", "Well?", context=TIGHT, conversation_id=mine)
        async with stage.bus.subscribe(stage.topic(topic)) as events:
            await stage.submitted(asked)
            async with asyncio.timeout(60):
                event = json.loads(await anext(events))
        assert event["owner_key"] == "bob"
        return event

    return act


async def by_the_dead_letter(stage: Stage) -> object:
    """What can't be answered is dead-lettered with bob's own bytes."""
    torn = b'{"owner_key": "bob", "id"'

    async def buried() -> object:
        found = await replied(stage, stage.topic(Topics.CONTEXT_BUILD_DEAD), "stream")
        return found if any(fields[b"data"] == torn for _, fields in found) else None

    await stage.bus.submit(torn)
    return await until(buried)


#: The acts of bob, by the name that a channel has in the AsyncAPI document.
ON_TOPICS: Final[Mapping[str, Act]] = {
    "requestStream": by_the_stream,
    "requestChannel": by_the_channel,
    "recallStream": by_recalls(submit_to, Topics.CONTEXT_RECALL_REQUEST),
    "recallChannel": by_recalls(publish_on, Topics.CONTEXT_RECALL_REQUEST),
    "recallResponseChannel": by_recalls(submit_to, Topics.CONTEXT_BUILD_REQUEST),
    "responseChannel": on_the_common_channel,
    "reply": by_replies,
    "modelResults": by_results(Topics.LLM_RESULTS, "AI"),
    "toolResults": by_results(Topics.TOOLS_RESULTS, "TOOL"),
    "historyImport": by_results(Topics.HISTORY_IMPORT, "HUMAN"),
    "contextPruned": by_events(Topics.CONTEXT_PRUNED),
    "contextSummarized": by_events(Topics.CONTEXT_SUMMARIZED),
    "contextCompacted": by_events(Topics.CONTEXT_COMPACTED),
    "deadLetters": by_the_dead_letter,
}


# --- what bob does over HTTP -------------------------------------------------------------------


async def by_a_route(stage: Stage, endpoint: Endpoint) -> object:
    """Ask as bob with the ids of her builds, rows and conversation."""
    first, second = stage.builds[:2]
    path = endpoint.path.format(id=first, a=first, b=second)
    headers = {"X-Owner-Key": "bob"}
    if endpoint.name == "live":
        return await by_the_feed(stage, path, headers)
    # a new route that takes something has no body here, and fails
    body = BODIES[endpoint.name] if endpoint.method == "POST" else None
    answer = await stage.http.request(endpoint.method, path, json=body, headers=headers)
    if "{" in endpoint.path:
        assert answer.status_code == 404, endpoint.name
    else:
        assert answer.status_code == 200, (endpoint.name, answer.text)
    return answer.text


async def by_the_feed(stage: Stage, path: str, headers: dict[str, str]) -> object:
    """Follow all that is kept, from before her builds on, until one of bob's own comes."""
    since = {**headers, "Last-Event-ID": f"{stage.served.recent.era}.0"}
    heard: list[str] = []
    async with stage.http.stream("GET", path, headers=since) as live:
        lines = live.aiter_lines()
        mine = await stage.submitted(stage.request("bob", "Hello"))
        async with asyncio.timeout(60):
            while not any(mine["content"]["build_id"] in line for line in heard):
                heard.append(await anext(lines))
    return heard


async def by_health(stage: Stage, page: str) -> object:
    """Request what a worker reports to any caller."""
    async with httpx2.AsyncClient(base_url=stage.health, trust_env=False) as http:
        answer = await http.get(page)
    assert answer.status_code == 200
    return answer.text


# --- the test ----------------------------------------------------------------------------------


async def test_nobody_reads_what_is_somebody_elses(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """On any route or topic, with any id of hers; afterwards all that is hers is as it was.

    A topic without a case fails here, as does a route that takes something.
    """
    assert ON_TOPICS.keys() == asyncapi_document()["channels"].keys()
    async with stage_of(redis_url, prefix, tmp_path) as stage:
        await furnish(stage, "ana", SECRET)
        before = await everything_of(stage, "ana")
        assert str(before).count(SECRET) > 100
        owned = set()
        for name, act in ON_TOPICS.items():
            assert_not_hers(name, await act(stage), stage)
        for endpoint in ENDPOINTS:
            if endpoint.name != "list_owners":  # the machine's own user sees the keys of owners
                assert_not_hers(endpoint.name, await by_a_route(stage, endpoint), stage)
            owned |= {endpoint.name} if endpoint.owned else set()
        for page in ("/livez", "/readyz", "/metrics"):
            assert_not_hers(page, await by_health(stage, page), stage)

        assert owned >= {"list_builds", "show_build", "live", "prune"}
        assert await everything_of(stage, "ana") == before
        # and it is there to be read, by her
        own = {"X-Owner-Key": "ana"}
        shown = await stage.http.get(f"/v1/builds/{stage.builds[0]}", headers=own)
        assert SECRET in shown.text


def assert_not_hers(place: str, seen: object, stage: Stage) -> None:
    """Fail where something of ana's can be read."""
    text = str(seen)
    hers = [SECRET, "'ana'", '"ana"', *stage.builds]
    assert not [word for word in hers if word in text], (place, text[:2_000])
    assert text, place


async def everything_of(stage: Stage, owner: str) -> list[object]:
    """Return what the store has of an owner."""
    history, summaries = stage.builder.history, stage.builder.sources.summaries
    assert summaries
    return [
        await history.get_history(owner, 1_000),
        await history.archived(owner, 1_000),
        await history.stats(owner),
        await stage.builder.sources.profiles.get(owner),
        await summaries.read(owner, "trip"),
    ]
