"""Shapes of callers' messages."""

from dataclasses import replace

import pytest

from formatters.model import Message, Role, ToolCall
from service.conversation.shapes import (
    BLOCKS,
    PARTS,
    ROWS,
    Shape,
    is_opaque,
    is_system,
    messages_from_dicts,
    messages_to_dicts,
    role_of,
    shape_of,
    to_blocks,
)
from tests.support import row
from tests.unit.service.conversation.talk import (
    Said,
    calls,
    function_call,
    parts,
    response,
    result,
    results,
    said,
    uses,
)


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (said("user", "hi"), ROWS),
        (said("user", None), ROWS),
        (said("user", [{"type": "text", "text": "hi"}]), ROWS),
        (said("user", ["hi", 7, {"type": []}]), ROWS),
        (calls("1"), ROWS),
        (result("1"), ROWS),
        ({}, ROWS),
        (uses("1"), BLOCKS),
        (results("1", text="so?"), BLOCKS),
        (parts("user", "hi"), PARTS),
        ({"role": "user", "parts": None, "content": "hi"}, PARTS),
    ],
)
def test_a_message_says_by_itself_what_shape_it_has(message: Said, shape: Shape) -> None:
    """So that shapes may be mixed in a list."""
    assert shape_of(message) is shape


def test_calls_and_results_of_any_shape_can_be_had_as_blocks() -> None:
    """For counters; what has none stays the same object."""
    text = {"type": "text", "text": "well"}
    use = {"type": "tool_use", "name": "search", "input": {"q": 1}}
    plain = said("user", "hi")

    assert to_blocks(plain) is plain
    assert to_blocks(calls("1", content="well")) == said("assistant", [text, use])
    assert to_blocks(parts("model", "well", function_call())) == said("model", [text, use])
    assert to_blocks(parts("user", response(), "well")) == said(
        "user", [{"type": "tool_result", "content": '{"found":1}'}, text]
    )
    both = results("1", text="well")
    assert to_blocks(both) is both


MENDED = (ToolCall(id="2", name="g", arguments={"a": 1}, text='{"a":1}'),)


def read(message: Said) -> Message:
    """Return what a message says."""
    (only,) = ROWS.read(message, "m")
    return only


def written(message: Said, **changes: object) -> Said:
    """Return a message with something in it changed."""
    return dict(ROWS.write(message, "m", [replace(read(message), **changes)]))  # type: ignore[arg-type] # fields of a message


def test_a_message_is_named_by_its_place() -> None:
    """Whatever id it has; ids of rows may not be distinct."""
    assert read({"id": "7", **said("user", "hi")}).id == "m"
    assert read(calls("1")).tool_calls[0].arguments == {"q": 1}


@pytest.mark.parametrize(
    ("message", "opaque"),
    [
        (said("user", "hi"), None),
        (said("user", [{"type": "image"}]), None),
        (said("user", [{"type": "audio"}]), [{"type": "audio"}]),
        ({"role": "assistant", "content": None, "refusal": "No"}, "No"),
        ({"role": "assistant", "content": None, "audio": {"id": "a"}}, {"id": "a"}),
        ({**said("user", [{"type": "audio"}]), "provider_parts": 1}, 1),
    ],
)
def test_what_is_no_text_goes_whole_or_not_at_all(message: Said, opaque: object) -> None:
    """As what a provider wants back."""
    assert read(message).provider_parts == opaque


def test_a_result_that_is_no_text_is_read_as_json() -> None:
    """It says something then, and may be cleared."""
    message = read(result("1", [{"type": "audio"}]))  # type: ignore[arg-type] # no text

    assert message.content == '[{"type": "audio"}]'
    assert message.provider_parts is None
    assert read(result("1", "")).content == ""


def test_only_what_changed_is_written() -> None:
    """The rest is as it was, in its place."""
    message = {**calls("1", content="so"), "name": "ada"}

    assert written(message) == message
    assert written(result("1"), content="gone") == result("1", "gone")
    assert written(result("1"), tool_call_id="2") == result("2")
    assert written({**said("user", "hi"), "tool_call_id": "1"}, tool_call_id=None) == said(
        "user", "hi"
    )
    assert written({**said("user", "hi"), "tool_calls": [{}]}, tool_calls=()) == said("user", "hi")
    assert "tool_call_id" not in written(said("tool", "found"))


def test_calls_are_written_in_the_form_that_they_had() -> None:
    """Nested or flat, of the message or its metadata; what isn't a call goes."""
    nested, flat = calls("1"), {"id": "1", "name": "search", "arguments": {"q": 1}, "more": 1}
    stored = row(1, "AI", "", metadata={"tool_calls": [flat, "odd"], "tokens": 3})

    assert written(nested, tool_calls=MENDED)["tool_calls"] == [
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": '{"a":1}'}}
    ]
    assert written(dict(stored), tool_calls=MENDED)["metadata"] == {
        "tool_calls": [{"id": "2", "name": "g", "arguments": {"a": 1}, "more": 1}],
        "tokens": 3,
    }
    nameless = {**said("assistant", ""), "tool_calls": [{"id": "1"}]}
    assert written(nameless, tool_calls=MENDED)["tool_calls"] == [
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": '{"a":1}'}}
    ]
    two = calls("1", "2")
    first, second = read(two).tool_calls
    assert written(two, tool_calls=(first, replace(second, id="3"))) == calls("1", "3")


def test_a_row_gets_an_id_in_its_metadata() -> None:
    """A chat message has it next to its content."""
    stored = row(1, "TOOL", "found")

    assert written(dict(stored), tool_call_id="1")["metadata"] == {"tool_call_id": "1"}
    assert written(said("tool", "found"), tool_call_id="1") == result("1")


def test_a_made_up_result_is_like_its_caller() -> None:
    """A row under a row, a chat message under a chat message."""
    made = Message(id="r", role=Role.TOOL, content="none", tool_call_id="1", name="search")
    stored = row(1, "AI", "", metadata={"tool_calls": []})

    assert ROWS.make_result(calls("1"), made) == result("1", "none")
    assert ROWS.make_result(stored, made)["metadata"] == {"tool_call_id": "1", "name": "search"}


@pytest.mark.parametrize(
    ("role", "who", "system"),
    [
        ("user", Role.HUMAN, False),
        ("HUMAN", Role.HUMAN, False),
        ("assistant", Role.AI, False),
        (" Model ", Role.AI, False),
        ("tool", Role.TOOL, False),
        ("System", Role.OTHER, True),
        ("developer", Role.OTHER, True),
        ("command", Role.OTHER, False),
        (None, Role.OTHER, False),
    ],
)
def test_roles_of_all_sources_are_known(role: object, who: Role, *, system: bool) -> None:
    """In any case; only instructions are system messages."""
    message = {"role": role, "content": "hi"}

    assert role_of(message) is who
    assert is_system(message) is system


def test_what_no_provider_knows_is_not_opaque() -> None:
    """Parts that can't be sent say nothing; one that may be known says something."""
    assert not is_opaque([1, None, {}, {"type": "text"}, "hi"])
    assert is_opaque(["hi", {"type": "input_audio"}])
    assert is_opaque(5)
    assert not is_opaque(None)


def test_dictionaries_become_messages_and_again_dictionaries() -> None:
    """In chat form, from any shape."""
    chat = [
        {**said("user", "hi"), "name": "ann"},
        calls("1", content="Let me look."),
        {**calls("2"), "content": None, "provider_parts": ["signed"]},
        result("1"),
        said("assistant", "It is there."),
    ]
    assert messages_to_dicts(messages_from_dicts(chat)) == chat

    other = [parts("user", "hi"), uses("1"), results("1", text="and?"), said("system", "s")]
    messages = messages_from_dicts([*other, {**said("user", "x"), "id": "mine"}])
    assert [message.id for message in messages] == ["0", "1", "2/0", "2", "3", "mine"]
    assert messages_to_dicts(messages) == [
        said("user", "hi"),
        {**calls("1"), "content": None},
        result("1"),
        said("user", "and?"),
        said("user", "s"),
        said("user", "x"),
    ]
