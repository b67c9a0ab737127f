"""Looks at builds and histories that the page has: providers' bodies, and what became of rows."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from formatters.model import Summary
from formatters.providers.formats import FORMATS
from service.config.settings import EventSettings
from service.http.builds import FormQuery
from service.ports.stores import ArchivedRow, Expected, rows_fingerprint
from tests.serving import Scene, serving
from tests.support import NOW
from tests.validity.forms import VALIDATORS


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A worker that shows everything and archives, with a history of ana's."""
    async with serving({"content": "full"}, events=EventSettings(archive=True)) as scene:
        await scene.remember(8)
        yield scene


def test_each_form_can_be_looked_at() -> None:
    """All that a request may name."""
    schema = FormQuery.model_json_schema()["properties"]["format"]
    assert set(schema["enum"]) == set(FORMATS)


@pytest.mark.parametrize("form", [name for name, convert in FORMATS.items() if convert])
async def test_a_body_is_that_which_the_request_would_have_had(scene: Scene, form: str) -> None:
    """With its cache marks; and a valid one where another form was requested."""
    options = {"current_input": "Hello", "context": {"format": form}}
    asked = await scene.built(id="msg_1", content=options)
    other = await scene.built(id="msg_2")
    bodies = [
        (await scene.get(f"/v1/builds/{each['build_id']}/raw?format={form}")).json()["body"]
        for each in (asked, other)
    ]

    assert bodies[0] == asked["provider_request"]
    assert other["provider_request"] is None
    assert VALIDATORS[form](bodies[1], []) == []
    assert "Secret number 7." in str(bodies[1])


async def test_the_canonical_body_has_messages_and_tools(scene: Scene) -> None:
    """As the response has them; tools are left out where there are none."""
    built = await scene.built()
    shown = (await scene.get(f"/v1/builds/{built['build_id']}/raw")).json()
    assert shown["body"] == {"messages": built["messages"]}
    assert shown["unavailable"] is None


async def test_a_build_is_shown_when_its_history_is_gone(scene: Scene) -> None:
    """As it was sent, for as long as its report is kept."""
    built = await scene.built()
    await scene.builder.history.erase("ana")
    shown = (await scene.get(f"/v1/builds/{built['build_id']}/raw")).json()
    assert shown["body"]["messages"] == built["messages"]


async def test_a_build_reports_how_long_its_parts_took(scene: Scene) -> None:
    """In milliseconds."""
    name = (await scene.built())["build_id"]
    timings = (await scene.get(f"/v1/builds/{name}")).json()["timings"]

    assert timings.keys() == {"gather", "fit"}
    assert all(took > 0 for took in timings.values())


async def departed(scene: Scene) -> list[ArchivedRow]:
    """Build with room for fewer rows than before, and return what has fallen out by then."""
    await scene.built(id="msg_1")
    options = {"memory_limit": 4}
    await scene.built(id="msg_2", content={"current_input": "Hello", "context": options})
    async with asyncio.timeout(60):
        while not (rows := await scene.builder.history.archived("ana", 100)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return rows


async def test_rows_that_fell_out_are_reported_by_build(scene: Scene) -> None:
    """With the reasons, and ids in the order of the history."""
    rows = await departed(scene)
    timeline = (await scene.get("/v1/timeline")).json()
    (departure,) = timeline["departures"]

    assert timeline["archive"] is True
    assert departure["ids"] == [each.row["id"] for each in reversed(rows)]
    assert departure["ids"] == sorted(departure["ids"])
    assert departure["reasons"] == {"memory_limit": len(rows)}
    assert (await scene.get(f"/v1/builds/{departure['build_id']}")).status_code == 200


async def summarised(scene: Scene, **fields: Any) -> Summary:
    """Put a summary of two rows of ana's next to her history."""
    ids = ("m0", "m1")
    summary = Summary(
        id="s1",
        owner_key="ana",
        text="Secret words.",
        message_ids=ids,
        tokens=3,
        created=NOW,
        summarizer="extractive",
        fingerprint=rows_fingerprint(await scene.builder.history.rows("ana", ids)),
        **fields,
    )
    store = scene.builder.sources.summaries
    assert store is not None
    expected = Expected(summaries=frozenset(), last_id="m1", rows=2)
    assert await store.put(summary, expected)
    return summary


async def test_summaries_are_reported(scene: Scene) -> None:
    """With what they cover; those of a conversation only where it is named."""
    await summarised(scene)
    (shown,) = (await scene.get("/v1/timeline")).json()["summaries"]
    elsewhere = (await scene.get("/v1/timeline?conversation_id=trip")).json()

    assert (shown["rows"], shown["tokens"], shown["summarizer"]) == (2, 3, "extractive")
    assert shown["text"] == "Secret words."
    assert elsewhere["summaries"] == []


async def test_nobody_sees_anothers_timeline(scene: Scene) -> None:
    """Neither what fell out nor what was summarised."""
    await departed(scene)
    await summarised(scene)
    hers, his = [(await scene.get("/v1/timeline", owner=who)).json() for who in ("ana", "bob")]

    assert hers["departures"]
    assert hers["summaries"]
    assert (his["departures"], his["summaries"]) == ([], [])


async def test_summaries_are_reported_without_their_words_by_default() -> None:
    """Where content is redacted; where nothing is archived, that is said."""
    async with serving() as scene:
        await scene.remember(8)
        await summarised(scene)
        answer = await scene.get("/v1/timeline")
        assert answer.json()["summaries"][0]["text"] is None
        assert "Secret" not in answer.text
        assert answer.json()["archive"] is False
