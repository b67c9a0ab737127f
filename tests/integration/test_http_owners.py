"""What one owner has is nobody else's, on any route."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.integration.test_http import following
from tests.serving import Scene, asking, serving

#: A message of ana's; nobody else may read it, or an id of hers.
SECRET = "the-treasure-lies-under-the-oak"
#: Bodies by operation: with the ids of her rows.
BODIES: dict[str, Any] = {
    "build": asking(owner_key="bob", conversation_id="trip"),
    "recall": asking(owner_key="bob", conversation_id="trip", content={"grep": "treasure"}),
    "what_if": {"memory_limit": None, "max_tokens": 100_000},
    "preview_pruning": {"target_tokens": 0, "conversation_id": "trip"},
    "prune": {"ids": ["ana-1", "ana-2"]},
    "undo_pruning": {"ids": ["ana-2"]},
    "import_history": {"rows": [{"id": "ana-1", "role": "user", "content": "bob's own"}]},
}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A worker that shows all it may, with a history of ana's; she has pruned a row of it."""
    async with serving({"content": "full"}) as scene:
        rows = [
            {"id": f"ana-{n}", "run_id": f"ana-r{n}", "role": "HUMAN", "content": f"{SECRET} {n}"}
            for n in range(3)
        ]
        await scene.builder.history.append("ana", rows, conversation_id="trip")
        await scene.builder.history.prune("ana", ["ana-2"])
        yield scene


async def test_no_route_shows_what_is_somebody_elses(scene: Scene) -> None:
    """Asked with the ids of her builds, rows and conversation, each as the document has it."""
    built = [await scene.built(content={"current_input": f"{SECRET} ana-x{n}"}) for n in range(2)]
    a, b = (each["build_id"] for each in built)
    before = await scene.builder.history.stats("ana")
    described = (await scene.get("/v1/openapi.json")).json()
    asked = 0
    for template, path, method, operation in operations(described, a, b):
        if operation["operationId"] == "list_owners":  # of a machine's own user, by their keys
            continue
        answer = await scene.http.request(
            method, path, json=BODIES.get(operation["operationId"]), headers={"X-Owner-Key": "bob"}
        )
        assert not [word for word in (SECRET, '"ana', a, b) if word in seen(answer)], template
        if "{" in template:
            assert answer.status_code == 404
        asked += 1

    assert asked == 16
    assert await scene.builder.history.stats("ana") == before
    assert (await scene.get(f"/v1/builds/{a}")).status_code == 200
    assert SECRET in (await scene.get(f"/v1/builds/{a}")).text


async def test_every_route_that_shows_data_demands_the_owner(scene: Scene) -> None:
    """A build id alone is not enough; what demands none shows nobody's data but owners' keys."""
    name = (await scene.built())["build_id"]
    described = (await scene.get("/v1/openapi.json")).json()
    open_to_all = set()
    for _, path, method, operation in operations(described, name, name):
        body = BODIES.get(operation["operationId"])
        named = [each["name"] for each in operation["parameters"] if each["in"] == "header"]
        if "X-Owner-Key" not in named:
            open_to_all.add(operation["operationId"])
            continue
        answer = await scene.http.request(method, path, json=body)
        assert (answer.status_code, "X-Owner-Key" in answer.text) == (400, True), path

    assert open_to_all == {"build", "recall", "version", "openapi", "list_owners"}


def seen(answer: httpx2.Response) -> str:
    """Return an answer without the ids that it only repeats."""
    reported = answer.json()
    if reported.keys() == {"ids", "changed"}:
        assert reported.pop("ids") == json.loads(answer.request.content)["ids"]
    return str(reported).replace("'", '"')


def operations(
    described: dict[str, Any], a: str, b: str
) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return template, path, method and description of each operation that ends."""
    return [
        (template, template.format(id=a, a=a, b=b), method.upper(), operation)
        for template, methods in described["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] != "live"
    ]


async def test_the_live_feed_reports_owners_of_their_own(scene: Scene) -> None:
    """Also of what was before: the first event of bob's is of a build of his."""
    await scene.built(content={"current_input": SECRET})
    since = {"X-Owner-Key": "bob", "Last-Event-ID": f"{scene.served.recent.era}.0"}
    async with scene.http.stream("GET", "/v1/live", headers=since) as live:
        lines = live.aiter_lines()
        while await anext(lines) != ": hello":
            pass
        await scene.built(content={"current_input": f"{SECRET} again"})
        his = await scene.built("bob")
        event = await following(lines)

    assert his["build_id"] in event["data"]


async def test_one_id_of_two_owners_is_two_requests(scene: Scene) -> None:
    """They get their own contexts, also where they ask at the same time."""
    answers = await asyncio.gather(
        *(
            scene.http.post("/v1/build", json=asking(id="msg_1", run_id="run_1", owner_key=owner))
            for owner in ("ana", "bob") * 4
        )
    )
    owners = [answer.json()["owner_key"] for answer in answers]

    assert owners == ["ana", "bob"] * 4
    assert [SECRET in answer.text for answer in answers] == [True, False] * 4


@pytest.mark.parametrize(
    "key", ["äöü 中文", "a%b", "a/b?c#d", '"; drop', "x" * 128, "🦊", "0xABC", " "]
)
async def test_any_key_can_be_named(scene: Scene, key: str) -> None:
    """Percent-encoded."""
    built = await scene.built(key)
    page = (await scene.get("/v1/builds", owner=key)).json()
    assert [each["build_id"] for each in page["builds"]] == [built["build_id"]]
