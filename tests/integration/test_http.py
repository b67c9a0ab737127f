"""The HTTP interface of a worker, over a real connection."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from structlog.testing import capture_logs

from service.app import connect_client, open_builder, open_bus, open_observed_worker
from service.config.endpoints import HealthSettings, HttpSettings
from service.config.settings import BusSettings, ReportSettings, Settings
from service.errors import BusError, ConfigError
from service.http.builds import WHAT_IF_OPTIONS, WhatIfBody
from service.http.interface import open_http
from service.http.submit import LONGEST_WAIT, MARGIN, build
from service.ports.stores import HistoryStats
from service.wire.response import BuildResponse
from tests.calling import calling, services
from tests.serving import TOKEN, Scene, asking, serving
from tests.support import NOW, BrokenHistory


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A worker that shows everything, with a history of ana's."""
    async with serving({"content": "full"}) as scene:
        await scene.remember()
        yield scene


# --- contexts --------------------------------------------------------------------------------


async def test_a_request_is_answered_as_on_the_bus(scene: Scene) -> None:
    """With a response of the wire; the input is recorded, and a retry gets the same answer."""
    request = asking(id="msg_1", metadata={"correlation_id": "c-1"})
    first = await scene.http.post("/v1/build", json=request)
    again = await scene.http.post("/v1/build", json=request)
    response = BuildResponse.model_validate_json(first.content)

    assert (first.status_code, again.status_code) == (200, 200)
    assert "Secret number 5." in str(response.content.messages)
    assert (response.owner_key, response.metadata.correlation_id) == ("ana", "c-1")
    assert again.json() == first.json()
    newest, *_ = await scene.builder.history.get_history("ana", 1)
    assert newest["content"] == "Hello"


async def test_a_request_without_an_id_has_that_of_its_bytes(scene: Scene) -> None:
    """So that a retry of the same bytes is known as one."""
    first = await scene.http.post("/v1/build", json=asking())
    again = await scene.http.post("/v1/build", json=asking())
    assert again.json()["id"] == first.json()["id"]


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (asking(content={}), 400, "invalid_request"),
        (asking(schema_version="9.0"), 400, "unsupported_version"),
        (asking(metadata={"deadline": "2020-01-01T00:00:00Z"}), 408, "deadline_exceeded"),
        (asking(content={"current_input": ["list"]}), 422, "unsupported_content"),
        (
            asking(content={"current_input": "x", "context": {"max_tokens": 2}}),
            422,
            "budget_exceeded",
        ),
    ],
)
async def test_errors_are_those_of_the_bus(
    scene: Scene, request_: dict[str, Any], status: int, code: str
) -> None:
    """In the response of the wire, with a status that says the same."""
    answer = await scene.http.post("/v1/build", json=request_)
    response = BuildResponse.model_validate_json(answer.content)

    assert response.content.status == "error"
    assert (answer.status_code, response.content.error.code) == (status, code)


async def test_an_id_is_for_one_request(scene: Scene) -> None:
    """Another one under it is a conflict."""
    await scene.http.post("/v1/build", json=asking(id="msg_1"))
    other = asking(id="msg_1", content={"current_input": "Something else"})
    answer = await scene.http.post("/v1/build", json=other)
    assert (answer.status_code, answer.json()["content"]["error"]["code"]) == (409, "id_conflict")


async def test_what_has_no_owner_has_no_response_of_the_wire() -> None:
    """Without a request to answer, the error is alone."""
    async with serving() as scene:
        answer = await scene.http.post("/v1/build", json={"content": {"current_input": "Hello"}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_building_can_be_switched_off() -> None:
    """Then builds can only be looked at."""
    async with serving({"build": False}) as scene:
        answer = await scene.http.post("/v1/build", json=asking())
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert (await scene.get("/version")).json()["build"] is False


async def test_only_so_much_is_done_at_the_same_time() -> None:
    """More is refused at once, and may come again; a caller without a worker gets an error."""
    async with serving({"concurrency": 1}, works=False) as scene:
        held = asking(metadata={"timeout_ms": 500})
        waiting = asyncio.create_task(scene.http.post("/v1/build", json=held))
        assert await scene.bus.requests.receive(1, wait=10)
        refused = await scene.post("/v1/prune/preview", {})
        late = await waiting

        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "overloaded"
        assert (late.status_code, late.json()["error"]["code"]) == (504, "no_answer")
        assert (await scene.post("/v1/prune/preview", {})).status_code == 200


async def test_a_deadline_is_waited_for() -> None:
    """As the worker does it: before a time limit, be it longer or shorter."""
    waited: list[float | None] = []

    async def late(
        request: Mapping[str, Any], *, timeout_seconds: float | None = None
    ) -> BuildResponse:
        waited.append(timeout_seconds)
        raise BusError("away")

    async with serving(works=False) as scene:
        builder = replace(scene.builder, clock=lambda: NOW)
        served = services(builder, "redacted", send=late)
        for seconds in (-5, 60, 600):
            metadata = {"deadline": (NOW + timedelta(seconds=seconds)).isoformat()}
            payload = json.dumps(asking(metadata={**metadata, "timeout_ms": 9_000})).encode()
            with pytest.raises(BusError):
                await build(calling(served, "", body=payload))

    assert waited == [MARGIN, 60 + MARGIN, LONGEST_WAIT + MARGIN]


async def test_callers_that_wait_for_a_build_get_an_error_when_the_worker_ends() -> None:
    """With the error of the wire, and no fault in the log: another worker may build it yet."""
    settings = Settings(bus=BusSettings(url="memory://"), http=HttpSettings(port=0))
    async with (
        open_bus(settings) as connected,
        open_builder(settings) as builder,
        connect_client(settings, connected.bus) as client,
        AsyncExitStack() as stack,
    ):
        opened = open_http(0, connected.bus, builder, client.exchange)
        served = await stack.enter_async_context(opened)
        with capture_logs() as logs:
            async with httpx2.AsyncClient(base_url=served.address, trust_env=False) as http:
                waiting = asyncio.create_task(http.post("/v1/build", json=asking()))
                assert await connected.bus.requests.receive(1, wait=10)
                await stack.aclose()
                answer = await waiting

    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "no_answer")
    assert [line for line in logs if line["log_level"] == "error"] == []


async def test_lists_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is limited: many open pages don't keep the worker from its requests."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    async with serving({"concurrency": 1}) as scene:
        stats = scene.builder.history.stats

        async def slow(owner_key: str) -> HistoryStats:
            begun.set()
            await go_on.wait()
            return await stats(owner_key)

        monkeypatch.setattr(scene.builder.history, "stats", slow)
        looking = asyncio.create_task(scene.get("/v1/history"))
        await begun.wait()
        refused = await scene.get("/v1/builds")
        await scene.built()
        go_on.set()

        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await looking).status_code == 200
        assert (await scene.get("/v1/builds")).status_code == 200


# --- builds, histories -----------------------------------------------------------------------


async def test_every_route_does_what_its_description_says(scene: Scene) -> None:
    """Each answer fits the schema that the document has for it; none is left out."""
    a = (await scene.built())["build_id"]
    b = (await scene.built(content={"current_input": "And now?"}))["build_id"]
    described = (await scene.get("/v1/openapi.json")).json()
    calls: dict[str, tuple[str, str, object]] = {
        "build": ("POST", "/v1/build", asking(id="msg_9")),
        "recall": ("POST", "/v1/recall", asking(content={"query": "What now?"})),
        "list_builds": ("GET", "/v1/builds?limit=1", None),
        "list_owners": ("GET", "/v1/owners", None),
        "list_messages": ("GET", f"/v1/messages?build={a}", None),
        "show_build": ("GET", f"/v1/builds/{a}", None),
        "show_form": ("GET", f"/v1/builds/{a}/raw?format=gemini", None),
        "diff_builds": ("GET", f"/v1/builds/{a}/diff/{b}", None),
        "what_if": ("POST", f"/v1/builds/{a}/what-if", {"memory_limit": 2}),
        "history_status": ("GET", "/v1/history?model=gpt-5", None),
        "timeline": ("GET", "/v1/timeline", None),
        "preview_pruning": ("POST", "/v1/prune/preview", {"target_tokens": 10}),
        "prune": ("POST", "/v1/prune", {"ids": ["m0"]}),
        "undo_pruning": ("POST", "/v1/prune/undo", {"ids": ["m0"]}),
        "import_history": ("POST", "/v1/history", {"rows": [{"id": "i", "role": "user"}]}),
        "version": ("GET", "/version", None),
        "openapi": ("GET", "/v1/openapi.json", None),
    }
    operations = {
        operation["operationId"]: operation
        for path in described["paths"].values()
        for operation in path.values()
    }

    assert set(operations) == {*calls, "live"}
    for name, (method, path, body) in calls.items():
        answer = await scene.http.request(method, path, json=body, headers={"X-Owner-Key": "ana"})
        assert answer.status_code == 200, answer.text
        fits(described, operations[name], answer)


async def test_errors_fit_their_description(scene: Scene) -> None:
    """Whatever goes wrong."""
    described = (await scene.get("/v1/openapi.json")).json()
    missing = f"/v1/builds/bld_{'0' * 32}"
    for method, path, template, body, status in (
        ("GET", missing, "/v1/builds/{id}", None, 404),
        ("GET", f"{missing}/diff/bld_{'1' * 32}", "/v1/builds/{a}/diff/{b}", None, 404),
        ("POST", f"{missing}/what-if", "/v1/builds/{id}/what-if", {"max_tokens": "many"}, 400),
        ("POST", "/v1/prune", "/v1/prune", {"ids": []}, 400),
        ("POST", "/v1/prune/preview", "/v1/prune/preview", {"target": 1}, 400),
        ("GET", "/v1/builds?limit=0", "/v1/builds", None, 400),
        ("POST", "/v1/build", "/v1/build", [], 400),
    ):
        answer = await scene.http.request(method, path, json=body, headers={"X-Owner-Key": "ana"})
        assert answer.status_code == status, answer.text
        fits(described, described["paths"][template][method.lower()], answer)


def fits(described: dict[str, Any], operation: dict[str, Any], answer: httpx2.Response) -> None:
    """Assert that an answer is one that an operation has."""
    kind = answer.headers["content-type"].partition(";")[0]
    schema = operation["responses"][str(answer.status_code)]["content"][kind]["schema"]
    whole = {**schema, "components": described["components"]}
    Draft202012Validator(whole).validate(answer.json())


def test_options_of_a_build_in_another_way_are_those_of_the_wire() -> None:
    """With the bounds that they have there."""
    assert tuple(WhatIfBody.model_fields) == WHAT_IF_OPTIONS


async def test_methods_and_paths_that_there_are_not(scene: Scene) -> None:
    """They are distinguished."""
    wrong = await scene.http.delete("/v1/builds")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD"}
    for path in ("/v1/nothing", "/v1/builds/", "/index.html/", "/static/../app.py"):
        nothing = await scene.get(path)
        assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "not_found")
    mistyped = (await scene.get("/v1/historyx")).json()["error"]
    assert mistyped["title"] == "Nothing of that name was found"
    assert mistyped["detail"] == "the path '/v1/historyx' is unknown; did you mean /v1/history?"


async def test_pruned_rows_are_in_no_build(scene: Scene) -> None:
    """From the commit to the undo."""
    ids = (await scene.post("/v1/prune/preview", {"target_tokens": 0})).json()["ids"]
    assert (await scene.post("/v1/prune", {"ids": ids})).json()["changed"] == len(ids) > 0
    pruned = await scene.built()
    assert (await scene.post("/v1/prune/undo", {"ids": ids})).json()["changed"] == len(ids)
    whole = await scene.built(content={"current_input": "And now?"})

    assert "Secret number 0." not in str(pruned["messages"])
    assert "Secret number 0." in str(whole["messages"])


async def test_words_are_shown_only_where_that_is_set() -> None:
    """By default no answer but that of a build has any."""
    async with serving() as scene:
        await scene.remember()
        a = (await scene.built())["build_id"]
        b = (await scene.built(content={"current_input": "And now, Secret?"}))["build_id"]
        answers = [
            await scene.get("/v1/builds"),
            await scene.get(f"/v1/builds/{a}"),
            await scene.get(f"/v1/builds/{a}/raw"),
            await scene.get(f"/v1/builds/{a}/diff/{b}"),
            await scene.post(f"/v1/builds/{a}/what-if", {"memory_limit": 2}),
            await scene.post("/v1/prune/preview", {"target_tokens": 0}),
        ]
        assert {answer.status_code for answer in answers} == {200}
        assert not [answer.text for answer in answers if "Secret" in answer.text]


async def test_what_is_erased_is_shown_no_more(scene: Scene) -> None:
    """Neither the build nor its line, as soon as the bus has forgotten the owner."""
    name = (await scene.built())["build_id"]
    assert len((await scene.get("/v1/builds")).json()["builds"]) == 1
    await scene.bus.forget("ana")

    assert (await scene.get("/v1/builds")).json() == {"builds": [], "next": None}
    assert (await scene.get(f"/v1/builds/{name}")).status_code == 404


async def test_an_outage_is_reported_as_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bus or the store; it may pass, and what the drivers say is for the log."""

    async def away(*_args: object) -> None:
        raise BusError("connect to redis://ana:hidden@host: refused")

    monkeypatch.setattr(scene.bus.reports, "get", away)
    monkeypatch.setattr(scene.builder.history, "stats", BrokenHistory().stats)
    codes = {f"/v1/builds/bld_{'0' * 32}": "bus_unavailable", "/v1/history": "history_unavailable"}
    for path, code in codes.items():
        answer = await scene.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        error = answer.json()["error"]
        assert (error["code"], error["retryable"]) == (code, True)
        assert "hidden" not in answer.text


async def test_a_fault_of_ours_reveals_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it; the next request is answered."""

    def broken(_name: str) -> str:
        raise RuntimeError("what nobody should read")

    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", broken)
        answer = await scene.get("/version")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "nobody" not in answer.text
    assert (await scene.get("/version")).status_code == 200


# --- the live feed ---------------------------------------------------------------------------


async def test_builds_are_reported_as_they_come(scene: Scene) -> None:
    """And again to who comes back, from where he was; the end of the worker ends it."""
    owner = {"X-Owner-Key": "ana"}
    async with scene.http.stream("GET", "/v1/live", headers=owner) as live:
        lines = live.aiter_lines()
        assert live.headers["content-type"] == "text/event-stream; charset=utf-8"
        while await anext(lines) != ": hello":
            pass
        built = await scene.built()
        event = await following(lines)
        assert json.loads(event["data"])["build_id"] == built["build_id"]
    second = await scene.built(content={"current_input": "And now?"})
    back = {**owner, "Last-Event-ID": event["id"]}
    async with scene.http.stream("GET", "/v1/live", headers=back) as live:
        lines = live.aiter_lines()
        event = await following(lines)
        assert json.loads(event["data"])["build_id"] == second["build_id"]
        scene.served.recent.close()
        assert [line async for line in lines if line] == []


async def following(lines: AsyncIterator[str]) -> dict[str, str]:
    """Return the next event."""
    found: dict[str, str] = {}
    async for line in lines:
        if line and not line.startswith((":", "retry")):
            name, _, value = line.partition(": ")
            found[name] = value
        elif found:
            break
    return found


async def test_a_look_at_the_head_of_the_feed_ends(scene: Scene) -> None:
    """It has no body to wait for."""
    head = await scene.http.head("/v1/live", headers={"X-Owner-Key": "ana"})
    assert (head.status_code, head.content) == (200, b"")


async def test_a_worker_keeps_nobodys_words() -> None:
    """What it lists are ids and counts, until their time is over."""
    async with serving({"content": "full"}, reports=ReportSettings(ttl_seconds=0.05)) as scene:
        await scene.remember()
        await scene.built()
        assert "Secret" not in str(vars(scene.served.recent))
        async with asyncio.timeout(60):
            while list(scene.served.recent.of("ana")):  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)


# --- the worker ------------------------------------------------------------------------------


def configured(**http: Any) -> Settings:
    """Return settings of a worker that serves."""
    return Settings(
        bus=BusSettings(url="memory://"),
        health=HealthSettings(port=None),
        http=HttpSettings(**http),
    )


async def test_a_worker_serves_what_is_configured() -> None:
    """On the port of the settings; a request goes through its own hands."""
    settings = configured(port=0, token=TOKEN)
    with capture_logs() as logs:
        async with (
            open_bus(settings) as connected,
            open_observed_worker(settings, connected.bus) as worker,
            asyncio.TaskGroup() as tasks,
        ):
            stop = asyncio.Event()
            tasks.create_task(worker.run(stop))
            address = next(e["address"] for e in logs if e["event"] == "http.listening")
            own = {"Authorization": f"Bearer {TOKEN}", "X-Owner-Key": "ana"}
            async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=60) as http:
                assert (await http.get("/version")).status_code == 401
                built = await http.post("/v1/build", json=asking(), headers=own)
                place = f"/v1/builds/{built.json()['content']['build_id']}"
                async with asyncio.timeout(60):
                    shown = await http.get(place, headers=own)
                    while shown.status_code == 404:
                        shown = await http.get(place, headers=own)
            stop.set()

    assert shown.json()["source"] == "report"


async def test_a_worker_serves_nobody_unasked() -> None:
    """Without a port nothing listens."""
    settings = configured()
    with capture_logs() as logs:
        async with open_bus(settings) as connected, open_observed_worker(settings, connected.bus):
            pass
    assert "http.listening" not in [entry["event"] for entry in logs]


async def test_a_port_that_is_taken_is_refused_at_the_start() -> None:
    """With the setting's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = configured(port=taken.getsockname()[1])
        async with open_bus(settings) as connected:
            with pytest.raises(ConfigError, match=r"http\.port"):
                async with open_observed_worker(settings, connected.bus):
                    pass


async def test_messages_are_recalled(scene: Scene) -> None:
    """Over the bus, with the texts of the wire's errors and their statuses."""
    contents: list[dict[str, Any]] = [{"ids": ["m1"]}, {"ids": ["m2"]}, {"ids": []}, {}]
    answers = [
        await scene.http.post("/v1/recall", json=asking(id="msg_1", content=content))
        for content in contents
    ]

    assert [answer.status_code for answer in answers] == [200, 409, 400, 400]
    assert answers[0].json()["content"]["text"].endswith("]: Secret number 1.")
    assert answers[2].json()["content"]["error"]["errors"][0]["pointer"] == "/content/ids"
    assert "needs exactly one of query" in answers[3].json()["content"]["error"]["detail"]
