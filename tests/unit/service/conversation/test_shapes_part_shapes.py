"""Messages of parts, read and written anew."""

from dataclasses import replace

from formatters.model import Role
from service.conversation.part_shapes import BLOCKS, PARTS
from tests.unit.service.conversation.talk import (
    Said,
    function_call,
    parts,
    response,
    results,
    said,
    uses,
)

IMAGE: Said = {"type": "image", "source": {}}


def test_results_come_before_what_is_said() -> None:
    """Each by itself; the rest is one message of the same speaker."""
    first, second, text = BLOCKS.read(results("1", "2", text="so?"), "m")

    assert [message.id for message in (first, second, text)] == ["m/0", "m/1", "m"]
    assert (first.role, first.tool_call_id, first.content) == (Role.TOOL, "1", "found")
    assert (text.role, text.content) == (Role.HUMAN, "so?")
    assert len(BLOCKS.read(results("1"), "m")) == 1


def test_what_stands_beside_results_is_the_users() -> None:
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
    """Results that went are gone, the others stand where they stood."""
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
