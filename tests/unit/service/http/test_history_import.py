"""Histories brought in over HTTP."""

import json
from typing import Any

import pytest

from service.builder import ContextBuilder
from service.config.settings import RecorderSettings, Settings
from service.errors import InvalidRequestError, RowRefusedError
from service.http.error_responses import HttpError
from service.http.history_import import MOST_ROWS, Imported, import_history
from tests.calling import calling, services
from tests.support import MakeBuilder

ROW = {"id": "m1", "role": "user", "content": "Where is the key?"}


async def imported(builder: ContextBuilder, body: object, owner: str = "o") -> Imported:
    """Return what became of a body."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await import_history(calling(services(builder, "redacted"), owner, body=payload))


async def problems(builder: ContextBuilder, body: object) -> dict[str, str]:
    """Return what is wrong with a body, by its place; nothing of it is stored."""
    with pytest.raises(InvalidRequestError) as raised:
        await imported(builder, body)
    assert (await builder.history.stats("o")).rows == 0
    return {problem.pointer: problem.detail for problem in raised.value.problems}


async def test_rows_of_all_roles_are_stored_once(make_builder: MakeBuilder) -> None:
    """In the conversation of the body, unless a row names another one; again, nothing changes."""
    builder = make_builder()
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    rows = [
        ROW,
        {"id": "m2", "role": "assistant", "content": None, "tool_calls": [call]},
        {"id": "m3", "role": "TOOL", "content": "a pot", "metadata": {"tool_call_id": "c1"}},
        {"id": "m4", "role": "AI", "content": "Hi", "conversation_id": "other", "owner_key": "o"},
    ]
    body = {"rows": rows, "conversation_id": "trip"}

    assert await imported(builder, body) == Imported(stored=4, known=0, conflicts=[])
    assert await imported(builder, body) == Imported(stored=0, known=4, conflicts=[])
    page = await builder.history.recent("o", "trip")
    assert [row["id"] for row in page.rows] == ["m3", "m2", "m1"]
    assert page.rows[1]["metadata"] == {"tool_calls": [call]}
    assert not any("owner_key" in row for row in page.rows)
    assert [row["id"] for row in (await builder.history.recent("o", "other")).rows] == ["m4"]


async def test_the_first_row_of_an_id_stays(make_builder: MakeBuilder) -> None:
    """The others are named, whether they were there before or came with it."""
    builder = make_builder()
    await imported(builder, {"rows": [ROW]})
    changed = [{**ROW, "content": "Who?"}, {**ROW, "id": "m2"}, {**ROW, "id": "m2", "role": "ai"}]

    assert await imported(builder, {"rows": changed}) == Imported(
        stored=1, known=2, conflicts=["m1", "m2"]
    )
    (row,) = await builder.history.rows("o", ["m1"])
    assert row["content"] == ROW["content"]


async def test_a_row_of_another_conversation_or_run_is_a_conflict(
    make_builder: MakeBuilder,
) -> None:
    """As it isn't where the caller looks for it; a row that names neither is none."""
    builder = make_builder()
    await imported(builder, {"rows": [{**ROW, "run_id": "r"}], "conversation_id": "trip"})

    async def conflicts(where: str | None, **fields: Any) -> list[str]:
        body = {"rows": [{**ROW, **fields}], "conversation_id": where}
        return list((await imported(builder, body)).conflicts)

    assert await conflicts("trip", run_id="r") == await conflicts(None) == []
    assert await conflicts("other") == await conflicts("trip", conversation_id="other") == ["m1"]
    assert await conflicts("trip", run_id="s") == ["m1"]


async def test_a_number_that_is_not_finite_is_refused(make_builder: MakeBuilder) -> None:
    """It has no form in JSON, so that reading it back would fail."""
    body = {"rows": [{**ROW, "metadata": {"x": 12345}}]}
    payload = json.dumps(body).replace("12345", "1e400").encode()

    assert list(await problems(make_builder(), payload)) == ["/rows/0/metadata/x"]


async def test_another_owner_has_rows_of_the_same_ids(make_builder: MakeBuilder) -> None:
    """Ids are an owner's own."""
    builder = make_builder()
    await imported(builder, {"rows": [ROW]})
    mine = await imported(builder, {"rows": [{**ROW, "content": "Mine"}]}, owner="p")

    assert mine == Imported(stored=1, known=0, conflicts=[])


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"id": None}, "id"),
        ({"id": "x" * 257}, "id"),
        ({"role": "system"}, "role"),
        ({"role": "bot"}, "role"),
        ({"timestamp": "soon"}, "timestamp"),
        ({"timestamp": 1_765_000_000}, "timestamp"),
        ({"metadata": []}, "metadata"),
        ({"content": 7}, "content"),
        ({"owner_key": "p"}, "owner_key"),
        ({"conversation_id": ""}, "conversation_id"),
        ({"id": "\ud800"}, "id"),
    ],
)
async def test_a_row_that_is_none_refuses_all(
    make_builder: MakeBuilder, change: dict[str, Any], place: str
) -> None:
    """With its place; the others are not stored, so that the corrected body is sent again."""
    body = {"rows": [{**ROW, "id": "m0"}, {**ROW, **change}]}

    assert list(await problems(make_builder(), body)) == [f"/rows/1/{place}"]


async def test_a_misspelt_key_has_a_warning(make_builder: MakeBuilder) -> None:
    """At the first row that has it."""
    found = await imported(make_builder(), {"rows": [ROW, {**ROW, "id": "m2", "runId": "r"}]})
    (warning,) = found.warnings

    assert (warning.code, warning.pointer) == ("unknown_key", "/rows/1/runId")
    assert warning.detail == "is ignored; did you mean run_id?"


USE = {"type": "tool_use", "id": "c1", "name": "find", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "a pot"}


@pytest.mark.parametrize(("role", "part"), [("assistant", USE), ("user", RESULT)])
async def test_calls_and_results_in_blocks_have_a_warning(
    make_builder: MakeBuilder, role: str, part: dict[str, Any]
) -> None:
    """Contexts read only the text of such rows; it says how to write the rest."""
    content = [{"type": "text", "text": "I look"}, part]
    row = {**ROW, "role": role, "content": content}
    found = await imported(make_builder(), {"rows": [ROW, {**row, "id": "m2"}]})
    (warning,) = found.warnings

    assert found.stored == 2
    assert (warning.code, warning.pointer) == ("content_skipped", "/rows/1/content")
    assert warning.detail == (
        f"blocks of type {part['type']}: not read; write calls as tool_calls,"
        " and each result as a message of the role tool; such rows: 1"
    )


async def test_blocks_whose_calls_are_given_as_well_are_stored(make_builder: MakeBuilder) -> None:
    """Nothing of them is lost; nor is anything of blocks with texts alone."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    rows = [
        {**ROW, "content": [{"type": "text", "text": "Where?"}]},
        {"id": "m2", "role": "assistant", "content": [USE], "metadata": {"tool_calls": [call]}},
        {"id": "m3", "role": "assistant", "content": [USE], "tool_calls": [call]},
    ]

    found = await imported(make_builder(), {"rows": rows})
    assert (found.stored, found.warnings) == (3, ())


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "/rows"),
        ({"rows": []}, "/rows"),
        ({"rows": "all"}, "/rows"),
        ({"rows": [ROW], "conversation": "trip"}, "/conversation"),
        ({"rows": [7]}, "/rows/0"),
        ({"rows": [ROW] * (MOST_ROWS + 1)}, "/rows"),
    ],
)
async def test_a_body_of_another_form_is_refused(
    make_builder: MakeBuilder, body: object, place: str
) -> None:
    """So are more rows than one call may bring."""
    assert list(await problems(make_builder(), body)) == [place]


async def test_large_bodies_are_stored_as_well(make_builder: MakeBuilder) -> None:
    """They are read in a thread."""
    rows = [{**ROW, "id": f"m{n}", "content": "word " * 100} for n in range(MOST_ROWS)]

    assert (await imported(make_builder(), {"rows": rows})).stored == MOST_ROWS


async def test_what_the_store_refuses_is_the_callers_to_correct(make_builder: MakeBuilder) -> None:
    """Such as a character that a database doesn't have."""
    builder = make_builder()

    async def refuse(*_args: object, **_options: object) -> int:
        raise RowRefusedError("m1: a null character")

    builder.history.append = refuse  # type: ignore[method-assign] # a store of another kind
    with pytest.raises(InvalidRequestError, match="nothing is stored: m1: a null character"):
        await imported(builder, {"rows": [ROW]})


async def test_where_no_history_is_written_none_is_imported(make_builder: MakeBuilder) -> None:
    """Another service writes it then."""
    builder = make_builder(settings=Settings(recorder=RecorderSettings(enabled=False)))
    with pytest.raises(HttpError, match=r"recorder\.enabled is off") as raised:
        await imported(builder, {"rows": [ROW]})

    assert raised.value.code == "forbidden"
