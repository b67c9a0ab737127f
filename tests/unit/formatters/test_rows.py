from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import (
    MAX_DEPTH,
    StoredRows,
    fix_surrogates,
    is_deep,
    read_content,
    read_role,
    read_row,
    read_rows,
    read_tool_calls,
    truncate,
)


def test_a_whole_row() -> None:
    """Every part of a row is read."""
    row = {
        "id": "m1",
        "run_id": "r1",
        "role": "TOOL",
        "content": "22 degrees",
        "timestamp": "2025-12-10T15:30:00Z",
        "metadata": {"tool_call_id": "c1", "name": "weather"},
    }

    assert read_row(row) == Message(
        id="m1",
        role=Role.TOOL,
        content="22 degrees",
        run_id="r1",
        timestamp=datetime(2025, 12, 10, 15, 30, tzinfo=UTC),
        tool_call_id="c1",
        name="weather",
    )


@pytest.mark.parametrize(
    "row",
    [
        {},
        dict.fromkeys(("id", "run_id", "role", "content", "timestamp", "metadata")),
        {"id": 1.5, "run_id": True, "role": 3, "content": 4, "timestamp": 5, "metadata": 6},
        {"id": [], "run_id": {}, "role": [], "content": [None], "timestamp": [], "metadata": []},
        {"id": 10**5000, "metadata": {"tool_calls": "none", "tool_call_id": [], "name": {}}},
        {"content": [{"type": ["text"]}, {"type": {}}, 7], "metadata": "{}"},
        None,
        "a row",
    ],
)
def test_odd_rows(row: object) -> None:
    """A row of any form is a message, if an empty one."""
    (message,) = read_rows([cast("Row", row)])

    assert replace(message, partial=False) == Message(id="row_0", role=Role.OTHER, content="")


@pytest.mark.parametrize("name", ["human", "user", "HUMAN", "User", " human\n"])
def test_human_roles(name: str) -> None:
    """Human and user are one role, in any case."""
    assert read_role(name) is Role.HUMAN


@pytest.mark.parametrize("name", ["ai", "assistant", "AI", "Assistant"])
def test_ai_roles(name: str) -> None:
    """AI and assistant are one role, in any case."""
    assert read_role(name) is Role.AI


@pytest.mark.parametrize("name", ["system", "command", "developer", "", "humans", None, 1, ["ai"]])
def test_other_roles(name: object) -> None:
    """Any other role is another role, not a guess."""
    assert read_role(name) is Role.OTHER


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hello", "Hello"),
        ("", ""),
        (None, ""),
        (12, ""),
        (b"bytes", ""),
        ([], ""),
        (["one", "two"], "one\ntwo"),
        ([{"type": "text", "text": "one"}, {"type": "output_text", "text": "two"}], "one\ntwo"),
        ({"type": "text", "text": "alone"}, "alone"),
        (
            [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "this?"}],
            "[image]\nthis?",
        ),
        ([{"type": "image"}, {"type": "input_image"}], "[image]\n[image]"),
        ([{"type": "audio"}, None, 7, {"text": 5}, {"text": "kept"}], "kept"),
        ("a\ud83d\ude00b\udc00", "a\U0001f600b\ufffd"),
        (["\udc00", {"text": "\ud83d"}], "\ufffd\n\ufffd"),
    ],
)
def test_contents(content: object, text: str) -> None:
    """Text parts are kept, images become a word, and the rest is skipped."""
    assert read_content(content) == text


NESTED = {
    "id": "c1",
    "type": "function",
    "function": {"name": "web_search", "arguments": '{"query": "x"}'},
}


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        ({"id": "c1", "name": "f", "arguments": {"query": "x"}}, "f", {"query": "x"}),
        ({"id": "c1", "name": "f", "arguments": '{"query":"x"}'}, "f", {"query": "x"}),
        (NESTED, "web_search", {"query": "x"}),
        ({"id": "c1", "function": {"name": "f", "arguments": {"n": 0}}}, "f", {"n": 0}),
        ({"id": "c1", "name": "f"}, "f", None),
        ({"id": "c1", "name": "f", "arguments": "{broken"}, "f", None),
        ({"id": "c1", "name": "f", "arguments": "[1]"}, "f", None),
        ({"id": "c1", "name": "f", "arguments": "[" * 100_000}, "f", None),
        ({"id": "c1", "name": "f", "arguments": 7}, "f", None),
        ({"id": "c1"}, "unknown", None),
        ({"id": "c1", "name": None, "function": "f"}, "unknown", None),
    ],
)
def test_tool_calls(call: object, name: str, arguments: Mapping[str, object] | None) -> None:
    """Flat and nested calls are read, and arguments as an object or as JSON."""
    (read,) = read_tool_calls([call])

    assert replace(read, text=None) == ToolCall(id="c1", name=name, arguments=arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{ "query":"\u00e9" }', '{ "query":"\u00e9" }'),
        ('{"query": "NaN \ud83d"}', '{"query": "NaN \ufffd"}'),
        ('{"n": NaN}', None),
        ('{"n": -Infinity}', None),
        ({"query": "x"}, None),
        ("{broken", None),
        ("[1]", None),
        (None, None),
    ],
)
def test_arguments_as_they_came(arguments: object, text: str | None) -> None:
    """Of arguments that came as the JSON of an object, the text is kept."""
    (read,) = read_tool_calls([{"id": "c1", "name": "f", "arguments": arguments}])

    assert read.text == text


def test_constants_that_are_no_json() -> None:
    """Arguments with NaN in them can be shown, if not sent."""
    (call,) = read_tool_calls([{"name": "f", "arguments": '{"n": NaN}'}])

    assert repr(call.arguments) == "{'n': nan}"


def test_a_chat_message_as_a_row() -> None:
    """Calls and answers may be next to the content; metadata takes precedence."""
    asked = read_row({"role": "assistant", "content": None, "tool_calls": [NESTED]})
    answer = {"role": "tool", "content": "ok", "tool_call_id": "c1", "name": "web_search"}
    found = read_row(answer)
    other = read_row({**answer, "metadata": {"tool_call_id": "c2", "name": None}})

    assert asked.tool_calls == read_tool_calls([NESTED])
    assert (found.tool_call_id, found.name) == ("c1", "web_search")
    assert (other.tool_call_id, other.name) == ("c2", "web_search")


@pytest.mark.parametrize("parts", [None, [], {}, "", 0, [{"type": "thinking"}]])
def test_parts_for_a_provider(parts: object) -> None:
    """Whatever a row brings for its provider is kept, the same object."""
    assert read_row({"metadata": {"provider_parts": parts}}).provider_parts is parts


@pytest.mark.parametrize("calls", [None, "web_search", b"x", 7, {}, [None, "x", 7]])
def test_what_is_no_list_of_calls(calls: object) -> None:
    """What is no call is skipped."""
    assert read_tool_calls(calls) == ()


def test_the_first_row_of_an_id_stands() -> None:
    """Of two rows with one id the first is the message."""
    first, second = read_rows([{"id": "m", "content": "1"}, {"id": "m", "content": "2"}, {"id": 7}])

    assert (first.id, first.content, second.id) == ("m", "1", "7")


def test_missing_ids_take_nobodys_place() -> None:
    """An id that is made differs from every id that is given."""
    rows = read_rows([{}, {"id": "row_0"}, {"id": "row_2"}, {"id": ""}, {"id": "row_3_"}, {}])

    assert [row.id for row in rows] == ["row_0_", "row_0", "row_2", "row_3", "row_3_", "row_5"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Grüße 你好 😀", "Grüße 你好 😀"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d-\ude00", "\ufffd-\ufffd"),
    ],
)
def test_repaired(text: str, whole: str) -> None:
    """Pairs of surrogates are joined, lone ones replaced, and the rest is left as it is."""
    assert fix_surrogates(text) == whole


@pytest.mark.parametrize(
    ("content", "partial"),
    [
        (None, False),
        ("", False),
        ("text", False),
        ([], False),
        (["", {"type": "text", "text": "a"}, {"type": "image"}], False),
        ([{"type": "audio"}], True),
        ([{"type": "text", "text": ""}], False),
        ([None], True),
        (7, True),
        ({}, True),
    ],
)
def test_content_that_is_not_all_shown_is_marked(content: object, partial: bool) -> None:
    """The reader of the row can warn that something is missing."""
    assert read_row({"content": content}).partial is partial


@pytest.mark.parametrize(
    ("id_", "name"),
    [(7, "7"), (2**64 - 1, str(2**64 - 1)), (2**64, "made"), (True, "made"), (None, "made")],
)
def test_ids_that_are_numbers(id_: object, name: str) -> None:
    """Whole numbers of up to 64 bits are names of rows."""
    assert read_row({"id": id_}, fallback_id="made").id == name


def test_stored_rows_are_a_list() -> None:
    """Equal to any list of the same rows; each row is one object, however often it is taken."""
    rows = StoredRows(['{"id": "1"}', '{"id": "2"}', '{"id": "3"}'])

    assert rows == [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    assert rows != [{"id": "1"}]
    assert rows != 7
    assert rows[::-1] == StoredRows(rows.bodies[::-1])
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert (len(rows), rows[-1]) == (3, {"id": "3"})
    assert all(one is other for one, other in zip(rows, rows, strict=True))


@pytest.mark.parametrize(
    ("chars", "text"),
    [
        (None, "a longer text"),
        (13, "a longer text"),
        (12, "a longer ..."),
        (4, "a..."),
        (3, "..."),
        (1, "."),
        (0, ""),
    ],
)
def test_cut(chars: int | None, text: str) -> None:
    """A text has at most n characters, of which the mark is part."""
    assert truncate("a longer text", chars) == text


@pytest.mark.parametrize("wrap", [lambda v: {"q": v}, lambda v: [v], lambda v: (1, v)])
def test_depth(wrap: Callable[[object], object]) -> None:
    """One limit bounds how deeply mappings and lists are nested; a circle has no end."""
    value: object = "text"
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    circle: list[object] = []
    circle.append(circle)
    assert not is_deep(value)
    assert is_deep(wrap(value))
    assert is_deep(circle)
