from typing import Any

import pytest

from tests.validity.openai_responses import openai_responses

HELLO = {"type": "message", "role": "user", "content": "hi"}
ANSWER = {"type": "message", "role": "assistant", "content": "hello"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
TOOL = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}


def call(id_: str = "c", **more: Any) -> dict[str, Any]:
    """Return an item that calls a function."""
    return {"type": "function_call", "call_id": id_, "name": "find", "arguments": "{}", **more}


def output(id_: str = "c", **more: Any) -> dict[str, Any]:
    """Return an item that answers a call."""
    return {"type": "function_call_output", "call_id": id_, "output": "", **more}


def body(*items: Any, **more: Any) -> dict[str, Any]:
    """Return a body."""
    return {"input": list(items), **more}


@pytest.mark.parametrize(
    "items",
    [
        [HELLO],
        [HELLO, HELLO, ANSWER],
        [HELLO, THOUGHT, ANSWER, call("a"), call("b"), output("b"), output("a"), ANSWER],
        [HELLO, THOUGHT, call(), ANSWER, output(output=[{"type": "input_text", "text": "a"}])],
        [HELLO, {"type": "web_search_call", "id": "ws_1"}, {**ANSWER, "content": [{}]}],
        [call(), output(), THOUGHT, call("d"), output("d")],
    ],
)
def test_valid_bodies(items: list[Any]) -> None:
    """Roles need not alternate; what one answer has may be between a call and its output."""
    assert openai_responses(body(*items, instructions="Be kind.", tools=[TOOL])) == []


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([], "input: there is none"),
        ([{}], "input[0]: has no type"),
        ([{**HELLO, "role": "tool"}], "input[0]: the role 'tool' is not known"),
        ([{**HELLO, "content": " "}], "input[0]: the content is empty"),
        ([{**HELLO, "content": []}], "input[0]: the content is empty"),
        (
            [call("x" * 65), output("x" * 65)],
            f"input[0]: the call_id '{'x' * 65}' is not of the allowed form",
        ),
        ([call(name="a.b"), output()], "input[0]: the name 'a.b' is not of the allowed form"),
        ([call(arguments="[]"), output()], "input[0]: the arguments are no JSON object"),
        ([call(), output(output=None)], "input[1]: the output is no text and no list"),
        (
            [call(), output(), call(), output()],
            "input[2]: the call id 'c' was used before, at input[0]",
        ),
        ([THOUGHT, THOUGHT, ANSWER], "input[1]: the id 'rs_1' was used before, at input[0]"),
        ([call()], "input[0]: the call 'c' is not answered directly after it"),
        ([call(), HELLO, output()], "input[0]: the call 'c' is not answered directly after it"),
        (
            [call("a"), call("b"), output("a"), ANSWER, output("b")],
            "input[1]: the call 'b' is not answered directly after it",
        ),
        ([HELLO, output()], "input[1]: answers 'c', which no call before it waits for"),
        ([call(), output(), output()], "input[2]: answers 'c', which no call before it waits for"),
        ([THOUGHT], "input[0]: a reasoning item without the item that it led to"),
        ([THOUGHT, HELLO], "input[0]: a reasoning item without the item that it led to"),
        ([call(), THOUGHT, output()], "input[1]: a reasoning item without the item that it led to"),
    ],
)
def test_faults_of_items(items: list[Any], problem: str) -> None:
    """Each is named with its place."""
    assert problem in openai_responses(body(*items))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "gpt"}, "model: is no field of this form"),
        ({"instructions": " "}, "instructions: are empty"),
        ({"tools": []}, "tools: there are none"),
        ({"tools": [{**TOOL, "type": "tool"}]}, "tools[0]: the type is not 'function'"),
        (
            {"tools": [{**TOOL, "name": "a.b"}]},
            "tools[0]: the name 'a.b' is not of the allowed form",
        ),
        ({"tools": [{**TOOL, "strict": None}]}, "tools[0]: does not say whether it is strict"),
        (
            {"tools": [{**TOOL, "parameters": {}}]},
            "tools[0].parameters: is no JSON schema of an object",
        ),
        ({"tools": [TOOL, TOOL]}, "tools[1]: the name 'find' was used before, at tools[0]"),
    ],
)
def test_faults_of_other_fields(fields: dict[str, Any], problem: str) -> None:
    """Each is named with its place."""
    assert openai_responses(body(HELLO, **fields)) == [problem]


def test_items_as_they_came() -> None:
    """A reasoning item is signed."""
    items = body(HELLO, THOUGHT, ANSWER)

    assert openai_responses(items, [[THOUGHT, ANSWER]]) == []
    assert openai_responses(items, [[{**THOUGHT, "summary": [1]}]]) != []
