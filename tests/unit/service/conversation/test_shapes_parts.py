"""Messages of blocks and of parts."""

from dataclasses import replace
from typing import Any

import pytest

from formatters.model import Message, Role, ToolCall
from service.conversation.shapes import BLOCKS, PARTS, BlockForm, FunctionForm, is_written_id
from tests.unit.service.conversation.talk import (
    Said,
    function_call,
    parts,
    response,
    results,
    said,
    uses,
)

BLOCK = BlockForm()


FUNCTION = FunctionForm()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("found", "found"),
        ([{"type": "text", "text": "found"}, {"type": "image"}], "found\n[image]"),
        ([{"type": "document"}], '[{"type":"document"}]'),
        (None, ""),
        ([], ""),
    ],
)
def test_a_block_of_a_result_has_text(content: Any, text: str) -> None:
    """Or its JSON, where nothing in it is text or image."""
    (block,) = results("1", content=content)["content"]

    assert BLOCK.read(block, "m") == Message(id="m", role=Role.TOOL, content=text, tool_call_id="1")


def test_a_block_of_a_call_has_its_input() -> None:
    """Which may be odd, and is then nothing that could be sent."""
    (block,) = uses("1")["content"]

    assert BLOCK.read(block, "m") == ToolCall(id="1", name="search", arguments={"q": 1})
    odd = {"type": "tool_use", "id": 1, "name": None, "input": "q"}
    assert BLOCK.read(odd, "m") == ToolCall(id=None, name="unknown")
    assert BLOCK.read({"type": "text", "text": "hi"}, "m") is None


@pytest.mark.parametrize("form", ["camel", "snake"])
def test_parts_are_read_in_both_spellings(form: str) -> None:
    """Gemini's API has one, its Python library the other."""
    call, answer = ("functionCall", "functionResponse")
    if form == "snake":
        call, answer = ("function_call", "function_response")
    asked: Said = {call: {"id": "1", "name": "f", "args": {"q": 1}}}
    answered: Said = {answer: {"id": "1", "name": "f", "response": {}}}
    read = FUNCTION.read(answered, "m")

    assert FUNCTION.read(asked, "m") == ToolCall(id="1", name="f", arguments={"q": 1})
    assert isinstance(read, Message)
    assert (read.content, read.tool_call_id, read.name) == ("{}", "1", "f")
    assert FUNCTION.with_call(asked, ToolCall(id="2", name="g", arguments={})) == {
        call: {"id": "2", "name": "g", "args": {}}
    }
    assert FUNCTION.with_result(answered, replace(read, content="gone")) == {
        answer: {"id": "1", "name": "f", "response": {"result": "gone"}}
    }


def test_a_call_of_parts_may_do_without_an_id() -> None:
    """It has one while it is worked on, which is never written."""
    part = {"functionCall": {"name": "f"}}
    call = FUNCTION.read(part, "m")

    assert isinstance(call, ToolCall)
    assert call.id is not None
    assert not is_written_id(call.id)
    assert is_written_id("1")
    assert not is_written_id(None)
    assert FUNCTION.with_call(part, replace(call, name="g")) == {
        "functionCall": {"name": "g", "args": {}}
    }
    assert FUNCTION.read({"functionResponse": {"name": "f"}}, "m") == Message(
        id="m", role=Role.TOOL, content="", name="f"
    )


def test_a_text_is_neither_call_nor_result() -> None:
    """Nor is an empty one of these."""
    others: list[Said] = [{"text": "hi"}, {"functionCall": {}}, {"functionResponse": None}]
    for part in others:
        assert FUNCTION.read(part, "m") is None


def test_only_calls_are_signed() -> None:
    """A signed text never changes anyway."""

    def opaque(part: Said) -> object:
        (message,) = PARTS.read(parts("model", part), "m")
        return message.provider_parts

    signed = {**function_call(), "thought_signature": "s"}
    assert opaque(signed) == [signed]
    assert opaque({"text": "hi", "thoughtSignature": "s"}) is None
    assert opaque(function_call()) is None


def test_a_new_id_leaves_the_content_as_it_was() -> None:
    """Images and structured responses too."""
    (block,) = results("1", content=[{"type": "image"}])["content"]
    seen, heard = BLOCK.read(block, "m"), FUNCTION.read(response(id="1"), "m")

    assert isinstance(seen, Message)
    assert isinstance(heard, Message)
    assert BLOCK.with_result(block, replace(seen, tool_call_id="2"), seen) == {
        **block,
        "tool_use_id": "2",
    }
    given, renamed = response(id="1"), replace(heard, tool_call_id="2")
    assert FUNCTION.with_result(given, renamed, heard) == response(id="2")


IMAGE: Said = {"type": "image", "source": {}}


def test_results_come_before_what_is_said() -> None:
    """Each by itself; the rest is one message of the same speaker."""
    first, second, text = BLOCKS.read(results("1", "2", text="so?"), "m")

    assert [message.id for message in (first, second, text)] == ["m/0", "m/1", "m"]
    assert (first.role, first.tool_call_id, first.content) == (Role.TOOL, "1", "found")
    assert (text.role, text.content) == (Role.HUMAN, "so?")
    assert len(BLOCKS.read(results("1"), "m")) == 1


def test_what_is_next_to_results_is_the_users() -> None:
    """Whatever the role is called, unless a model says it."""
    *_, tool = PARTS.read(parts("function", response(), "so?"), "m")
    *_, model = PARTS.read(parts("model", response(), "so?"), "m")

    assert (tool.role, model.role) == (Role.HUMAN, Role.AI)


def test_calls_stand_in_what_is_said() -> None:
    """With the text around them."""
    (message,) = PARTS.read(parts("model", "well", function_call(), {"text": "so"}), "m")

    assert (message.content, message.role) == ("well\nso", Role.AI)
    assert [call.name for call in message.tool_calls] == ["search"]
    (plain,) = PARTS.read({"role": "user", "parts": "hi"}, "m")
    assert plain.content == "hi"
    (empty,) = PARTS.read(parts("model"), "m")
    assert empty.content == ""


def test_what_a_provider_wants_back_goes_whole() -> None:
    """Signed thoughts and what is no text; an image is shown as one."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    (signed,) = BLOCKS.read(said("assistant", [thought, *uses("1")["content"]]), "m")
    (call,) = PARTS.read(parts("model", {**function_call(), "thoughtSignature": "s"}), "m")
    (image,) = BLOCKS.read(said("assistant", [IMAGE, *uses("1")["content"]]), "m")

    assert signed.provider_parts == [thought, *uses("1")["content"]]
    assert call.provider_parts is not None
    assert (image.provider_parts, image.content) == (None, "[image]")


def test_what_is_left_is_written_with_the_same_parts() -> None:
    """Dropped results are gone, the others keep their position."""
    given = {**results("1", "2", text="so?"), "more": 1}
    first, second, text = BLOCKS.read(given, "m")

    assert BLOCKS.write(given, "m", [first, second, text]) == given
    assert BLOCKS.write(given, "m", [second]) == {**results("2"), "more": 1}
    assert BLOCKS.write(given, "m", [text]) == {**results(text="so?"), "more": 1}
    gone = replace(first, content="gone")
    assert BLOCKS.write(given, "m", [gone])["content"] == results("1", content="gone")["content"]


def test_calls_are_written_as_they_are_now() -> None:
    """Those that went are gone."""
    given = parts("model", "well", function_call(), function_call("other"))
    (message,) = PARTS.read(given, "m")
    first, second = message.tool_calls
    renamed = replace(message, tool_calls=(first, replace(second, name="another")))

    assert PARTS.write(given, "m", [message]) == given
    assert PARTS.write(given, "m", [renamed]) == parts(
        "model", "well", function_call(), function_call("another")
    )
    assert PARTS.write(given, "m", [replace(message, tool_calls=())]) == parts("model", "well")
    assert PARTS.write(given, "m", []) == parts("model")


def test_a_made_up_result_is_a_users_message() -> None:
    """Of one part."""
    (found,) = BLOCKS.read(results("1"), "m")

    assert BLOCKS.make_result(uses("1"), found) == results("1")
    assert PARTS.make_result({}, replace(found, name="f", tool_call_id=None)) == parts(
        "user", {"functionResponse": {"name": "f", "response": {"result": "found"}}}
    )
