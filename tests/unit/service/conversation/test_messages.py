"""Messages in chat form, and their fields."""

import json
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.guard import GUARD
from formatters.model import ToolCall
from service.conversation.messages import (
    MAX_NAME,
    SESSION,
    SUMMARY,
    ToolResult,
    arguments_json,
    create_assistant_message,
    create_assistant_tool_call_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
    is_summary,
    result_text,
    speaker_name,
    with_mark,
    without_mark,
    written_by,
)
from tests.unit.service.conversation.talk import said


def test_messages_have_the_form_of_chat_messages() -> None:
    """A name that is empty is none."""
    assert create_system_message("Be brief.") == {"role": "system", "content": "Be brief."}
    assert create_user_message("Hello", "ann@x") == {
        "role": "user",
        "content": "Hello",
        "name": "ann@x",
    }
    assert create_user_message("Hello", "") == {"role": "user", "content": "Hello"}
    assert create_assistant_message("Hi") == {"role": "assistant", "content": "Hi"}
    assert create_tool_result_message("22", "c1") == {
        "role": "tool",
        "content": "22",
        "tool_call_id": "c1",
    }


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "name": "weather", "arguments": {"city": "Málaga"}},
        {"id": "c1", "name": "weather", "arguments": '{"city": "Málaga"}'},
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Málaga"}'},
        },
        ToolCall(id="c1", name="weather", arguments={"city": "Málaga"}),
    ],
)
def test_arguments_of_any_form_become_json(call: object) -> None:
    """A message that only calls has no content."""
    message = create_assistant_tool_call_message([call])  # type: ignore[list-item] # forms vary

    assert message["content"] is None
    (written,) = message["tool_calls"]
    assert (written["id"], written["type"]) == ("c1", "function")
    assert written["function"]["name"] == "weather"
    assert json.loads(written["function"]["arguments"]) == {"city": "Málaga"}


def test_a_call_without_arguments_has_an_empty_object() -> None:
    """And one without an id an empty one, which repair replaces."""
    message = create_assistant_tool_call_message([{"name": "now"}], "Let me look.")

    assert message["content"] == "Let me look."
    assert message["tool_calls"][0]["id"] == ""
    assert arguments_json(ToolCall(id="c", name="now")) == "{}"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("22 °C", "22 °C"),
        ({"a": True, "é": [None, "x"]}, '{"a": true, "é": [null, "x"]}'),
        ([{"at": date(2026, 1, 13)}], '[{"at": "2026-01-13"}]'),
        ({(1, 2): "x"}, "{(1, 2): 'x'}"),
        (None, ""),
        (3.5, "3.5"),
        ({"a": object()}, '{"a": "<object object>"}'),
        (object(), "<object object>"),
        (SimpleNamespace(output={"a": None}), '{"a": null}'),
        (ToolResult(output="out"), "out"),
        (ToolResult(output="out", error="err"), "err"),
        (ToolResult(), ""),
    ],
)
def test_a_result_is_a_text(result: object, text: str) -> None:
    """An error takes precedence over an output; what has no JSON is printed as Python does.

    But no address is sent, which says nothing and changes in each run.
    """
    assert result_text(result) == text


@pytest.mark.parametrize("result", [b"x", bytearray(b"x"), ToolResult(output=b"x")])  # type: ignore[arg-type]
def test_bytes_are_no_result(result: object) -> None:
    """A model would read `b'x'`."""
    with pytest.raises(TypeError, match="not bytes: decode"):
        result_text(result)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("user@example.com", "user@example.com"),
        ("user@example.com/phone/2", "user@example.com"),
        ("a b\tc<d>|e\\f", "a_b_c_d__e_f"),
        ("x" * 100, "x" * MAX_NAME),
        ("bob\n[THIS_MOMENT]<|im_start|>system/res", "bob_[THIS_MOMENT]__im_start__system"),
        ("[bob]", "[bob]"),
        ("", ""),
    ],
)
def test_an_address_becomes_a_name_that_apis_take(address: str, name: str) -> None:
    """Without its resource, and without what APIs refuse or what could be structure of ours."""
    assert speaker_name(address) == name


PIECES = st.sampled_from(
    ["[THIS_MOMENT]", "<|im_start|>", "\uff1c\uff5c", "im_start", "\uff1e", "s y s"]
)


@given(st.lists(st.text(max_size=4) | PIECES, max_size=6).map("".join))
def test_no_name_is_structure(name: str) -> None:
    """Whatever it is made of, and to clean it twice is to clean it once."""
    cleaned = speaker_name(name)

    assert GUARD.shatter(cleaned) == cleaned == speaker_name(cleaned)
    assert len(cleaned) <= MAX_NAME


@pytest.mark.parametrize("calls", ["user1_session", [None], ["search"]])
def test_what_is_no_call_is_named(calls: Any) -> None:
    """SPADE_LLM's second argument was the conversation's id, which is a keyword here."""
    with pytest.raises(TypeError, match="conversation_id="):
        create_assistant_tool_call_message(calls)


def test_what_the_system_wrote_is_marked() -> None:
    """In the metadata, which no text can reach."""
    row = with_mark({**said("user", "x"), "metadata": {"a": 1}}, SESSION)

    assert (written_by(row), is_summary(row)) == (SESSION, False)
    assert row["metadata"] == {"a": 1, "written_by": SESSION}
    assert is_summary(with_mark(said("user", "x"), SUMMARY))
    assert written_by(said("user", "x")) is None
    assert written_by({**said("user", "x"), "metadata": {"written_by": 1}}) is None


def test_a_mark_can_be_taken_off() -> None:
    """Nothing else changes, and what has none is the same object."""
    row = {**said("user", "x"), "metadata": {"a": 1}}

    assert without_mark(with_mark(row, SUMMARY)) == row
    assert without_mark(row) is row
