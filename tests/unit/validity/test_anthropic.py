from typing import Any

import pytest

from tests.validity.anthropic import anthropic

MARK = {"type": "ephemeral"}


def text(words: str = "hi", **more: Any) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words, **more}


def call(id_: str = "c", **more: Any) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": id_, "name": "find", "input": {}, **more}


def result(id_: str = "c", **more: Any) -> dict[str, Any]:
    """Return a block that answers a call."""
    return {"type": "tool_result", "tool_use_id": id_, "content": "found", **more}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TOOL = {"name": "find", "input_schema": {"type": "object"}}


def user(*blocks: Any) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    """Return an assistant's message."""
    return {"role": "assistant", "content": list(blocks)}


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    """Return a body with a tool."""
    return {"tools": [TOOL], "messages": list(messages), **more}


def test_a_valid_body() -> None:
    """Marks, thoughts, pictures, parallel calls and results without content are fine."""
    bare = {"type": "tool_result", "tool_use_id": "b"}
    spoken = assistant(THOUGHT, text("a", cache_control=MARK), call("a"), call("b"))
    answered = user(bare, result("a", content=[text("x")]), {"type": "image", "source": {}}, text())
    whole = body(user(text()), spoken, answered, system=[text(cache_control=MARK)])

    assert anthropic(whole, [[THOUGHT]]) == []
    assert anthropic({"messages": [user(text())]}) == []
    assert anthropic(body(user(text()), system=[text(cache_control=MARK)] * 4)) == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "messages: there are none"),
        ([assistant(text()), user(text())], "messages[0]: the first message is not a user's"),
        ([user(text()), assistant(text())], "messages[1]: the last message is not a user's"),
        (
            [{"role": "tool", "content": [text()]}, user(text())],
            "messages[0]: the role 'tool' is not known",
        ),
        ([user(text()), user(text())], "messages[1]: follows a message of the same role"),
        ([user()], "messages[0]: has no content"),
        ([{"role": "user", "content": "hi"}], "messages[0]: has no content"),
        ([user({})], "messages[0].content[0]: has no type"),
        ([user(text(" \n"))], "messages[0].content[0]: the text is empty"),
        (
            [user(THOUGHT)],
            "messages[0].content[0]: a block of type 'thinking' in a message of the role 'user'",
        ),
        (
            [user(call())],
            "messages[0].content[0]: a block of type 'tool_use' in a message of the role 'user'",
        ),
        (
            [user(text()), assistant(call("a.b")), user(result("a.b"))],
            "messages[1].content[0]: the id 'a.b' is not of the allowed form",
        ),
        (
            [user(text()), assistant(call(name="a b")), user(result())],
            "messages[1].content[0]: the name 'a b' is not of the allowed form",
        ),
        (
            [user(text()), assistant(call(input="{}")), user(result())],
            "messages[1].content[0]: the input is no object",
        ),
        (
            [user(text()), assistant(call()), user(result(content=""))],
            "messages[2].content[0]: the result is empty",
        ),
        (
            [user(text()), assistant(call()), user(result()), assistant(call()), user(result())],
            "messages[3].content[0]: the id 'c' was used before, at messages[1].content[0]",
        ),
        (
            [user(text()), assistant(call()), user(text())],
            "messages[1]: the call 'c' is not answered in the next message",
        ),
        (
            [user(text()), assistant(call())],
            "messages[1]: the call 'c' is not answered in the next message",
        ),
        ([user(result())], "messages[0].content[0]: answers no call of the message before it"),
        (
            [user(text()), assistant(call()), user(result(), result())],
            "messages[2].content[1]: answers no call of the message before it",
        ),
        (
            [user(text()), assistant(call()), user(text(), result())],
            "messages[2].content[1]: a result behind another block",
        ),
    ],
)
def test_faults_of_messages(messages: list[Any], problem: str) -> None:
    """Each is named with its place."""
    assert problem in anthropic(body(*messages))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "claude"}, "model: is no field of this form"),
        ({"system": []}, "system: has no blocks"),
        ({"system": "Be kind."}, "system: has no blocks"),
        ({"system": [text("")]}, "system[0]: is no text that says something"),
        ({"system": [{**text(), "type": "image"}]}, "system[0]: is no text that says something"),
        ({"tools": []}, "tools: there are none"),
        (
            {"tools": [{**TOOL, "name": "a.b"}]},
            "tools[0]: the name 'a.b' is not of the allowed form",
        ),
        ({"tools": [{"name": "find"}]}, "tools[0].input_schema: is no JSON schema of an object"),
        (
            {"tools": [{"name": "f", "input_schema": {"type": "object", "anyOf": []}}]},
            "tools[0].input_schema: has anyOf at its top",
        ),
        (
            {
                "tools": [
                    {"name": "f", "input_schema": {"type": "object", "properties": {"a b": {}}}}
                ]
            },
            "tools[0].input_schema: the property 'a b' is not of the allowed form",
        ),
        ({"tools": [TOOL, TOOL]}, "tools[1]: the name 'find' was used before, at tools[0]"),
        (
            {"system": [text(cache_control={"type": "forever"})]},
            "system[0]: the cache mark is of no known type",
        ),
        (
            {"tools": [{**TOOL, "cache_control": {}}]},
            "tools[0]: the cache mark is of no known type",
        ),
        ({"system": [text(cache_control=MARK)] * 5}, "system[4]: more than 4 cache marks"),
    ],
)
def test_faults_of_other_fields(fields: dict[str, Any], problem: str) -> None:
    """Each is named with its place."""
    assert anthropic(body(user(text()), **fields)) == [problem]


def test_tools_that_were_called_have_to_be_declared() -> None:
    """The API refuses calls without any definition."""
    messages = [user(text()), assistant(call()), user(result())]

    assert anthropic({"messages": messages}) == ["tools: there are none"]


def test_a_thought_may_not_be_marked() -> None:
    """A mark goes on the block before it."""
    marked = {**THOUGHT, "cache_control": MARK}

    assert anthropic(body(user(text()), assistant(marked, text()), user(text()))) == [
        "messages[1].content[0]: a thought may not be marked"
    ]


def test_a_thought_that_leads_its_parts_leads_its_message() -> None:
    """The API refuses an answer that doesn't begin with its thought."""
    behind = body(user(text()), assistant(text(), THOUGHT, text()), user(text()))

    assert anthropic(behind, [[THOUGHT]]) == [
        "provider_parts 0: something precedes the thought that leads them"
    ]
    assert anthropic(behind, [[text(), THOUGHT]]) == []
    assert anthropic(behind, [[]]) == []
