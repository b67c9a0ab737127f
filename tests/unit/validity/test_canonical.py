from typing import Any

import pytest

from tests.support import SEARCH
from tests.validity.canonical import canonical

SYSTEM = {"role": "system", "content": "Be kind."}
HELLO = {"role": "user", "content": "hi"}


def call(id_: str = "c", **more: Any) -> dict[str, Any]:
    """Return a call."""
    function = {"name": "find", "arguments": "{}", **more}
    return {"id": id_, "type": "function", "function": function}


def calling(*calls: Any, content: str = "") -> dict[str, Any]:
    """Return an assistant that calls tools."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id_: str = "c", content: str = "found") -> dict[str, Any]:
    """Return a tool's answer."""
    return {"role": "tool", "tool_call_id": id_, "content": content}


ANSWER = {"role": "assistant", "content": "hello"}


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, HELLO],
        [SYSTEM, HELLO, HELLO, HELLO],
        [SYSTEM, HELLO, calling(call()), result()],
        [SYSTEM, calling(call("a"), call("b"), content="I look"), result("b"), result("a"), ANSWER],
        [SYSTEM, HELLO, calling(call()), result(content=""), ANSWER, ANSWER, HELLO],
        [SYSTEM, HELLO, {**ANSWER, "provider_parts": {"anything": 1}}],
    ],
)
def test_valid_messages(messages: list[Any]) -> None:
    """Several users, parallel calls, empty results and any provider part are fine."""
    assert canonical(messages, [SEARCH]) == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "messages: there are none"),
        (
            [{"role": "assistant", "content": "Hi"}, HELLO],
            "messages[0]: is neither the system message nor a user's",
        ),
        ([SYSTEM, SYSTEM, HELLO], "messages[1]: a system message that is not the first"),
        (
            [SYSTEM, HELLO, {"role": "assistant", "content": "", "tool_calls": [{}]}],
            "messages[2]: the last message is no user's, no tool's and no assistant's text",
        ),
        ([SYSTEM], "messages[0]: the last message is no user's, no tool's and no assistant's text"),
        (
            [SYSTEM, {"role": "bot", "content": "a"}, HELLO],
            "messages[1]: the role 'bot' is not known",
        ),
        ([SYSTEM, {"role": "user"}], "messages[1]: the content is no text"),
        ([SYSTEM, {**HELLO, "content": [{}]}], "messages[1]: the content is no text"),
        ([SYSTEM, {**HELLO, "content": " \n"}], "messages[1]: the content is empty"),
        ([SYSTEM, {**ANSWER, "content": ""}], "messages[1]: the content is empty"),
        ([SYSTEM, {**HELLO, "tool_calls": []}], "messages[1]: only an assistant may call tools"),
        ([SYSTEM, {**HELLO, "tool_call_id": "c"}], "messages[1]: only a tool may answer a call"),
        ([SYSTEM, {**ANSWER, "tool_calls": []}], "messages[1].tool_calls: has no calls"),
        (
            [SYSTEM, calling({**call(), "type": "tool"}), result()],
            "messages[1].tool_calls[0]: the type is not 'function'",
        ),
        ([SYSTEM, calling(call("")), result("")], "messages[1].tool_calls[0]: has no id"),
        (
            [SYSTEM, calling(call(name="a.b")), result()],
            "messages[1].tool_calls[0]: the name 'a.b' is not of the allowed form",
        ),
        (
            [SYSTEM, calling(call(arguments="[]")), result()],
            "messages[1].tool_calls[0]: the arguments are no JSON object",
        ),
        (
            [SYSTEM, calling(call()), result(), calling(call()), result()],
            "messages[3].tool_calls[0]: the call id 'c' was used before,"
            " at messages[1].tool_calls[0]",
        ),
        (
            [SYSTEM, calling(call()), HELLO],
            "messages[1]: the call 'c' is not answered directly after it",
        ),
        (
            [SYSTEM, calling(call("a"), call("b")), result("a")],
            "messages[1]: the call 'b' is not answered directly after it",
        ),
        (
            [SYSTEM, HELLO, result("x")],
            "messages[2]: answers 'x', which no call before it waits for",
        ),
        (
            [SYSTEM, calling(call()), result(), result()],
            "messages[3]: answers 'c', which no call before it waits for",
        ),
    ],
)
def test_each_fault_is_named_with_its_place(messages: list[Any], problem: str) -> None:
    """It names the location."""
    assert problem in canonical(messages)


@pytest.mark.parametrize("messages", [[None], ["text"], [[]], [{"role": []}]])
def test_what_is_no_message_is_no_crash(messages: list[Any]) -> None:
    """A validator is given anything."""
    assert canonical(messages) != []


def a_tool(**function: Any) -> dict[str, Any]:
    """Return a definition."""
    return {"type": "function", "function": {"name": "find", **function}}


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([{**a_tool(), "type": "tool"}], "tools[0]: the type is not 'function'"),
        ([a_tool(name="a.b")], "tools[0]: the name 'a.b' is not of the allowed form"),
        ([a_tool(name="x" * 65)], f"tools[0]: the name '{'x' * 65}' is not of the allowed form"),
        (
            [a_tool(parameters={"type": "array"})],
            "tools[0].function.parameters: is no JSON schema of an object",
        ),
        ([a_tool(), a_tool()], "tools[1]: the name 'find' was used before, at tools[0]"),
    ],
)
def test_tools_are_checked_too(tools: list[Any], problem: str) -> None:
    """They are sent next to the messages."""
    assert canonical([SYSTEM, HELLO], tools) == [problem]
