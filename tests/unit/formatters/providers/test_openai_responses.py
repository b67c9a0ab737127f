from typing import Any

import pytest

from formatters.providers.formats import build_provider_request
from tests.validity.openai_responses import openai_responses as violations

SYSTEM = {"role": "system", "content": "Be kind."}
HELLO = {"role": "user", "content": "hi"}
FIND = {
    "type": "function",
    "function": {"name": "find", "description": "Find", "parameters": {"type": "object"}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": ""}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
OWN = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "own"}],
}


def answer(parts: object = None, content: str = "I look", *calls: Any) -> dict[str, Any]:
    """Return an assistant's message."""
    called = {"tool_calls": list(calls)} if calls else {}
    return {"role": "assistant", "content": content, "provider_parts": parts, **called}


def convert(*messages: Any, tools: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Return the body of a conversation, which has to be valid."""
    body = build_provider_request("openai_responses", [SYSTEM, *messages], tools)
    assert body is not None
    assert violations(body) == []
    return body


def test_a_whole_conversation() -> None:
    """Calls and their outputs are items; the arguments stay the text that they are."""
    body = convert(HELLO, answer(None, "I look", CALL), RESULT, tools=(FIND,))

    assert body == {
        "instructions": "Be kind.",
        "input": [
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "message", "role": "assistant", "content": "I look"},
            {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"q": 1}'},
            {"type": "function_call_output", "call_id": "c1", "output": ""},
        ],
        "tools": [
            {
                "type": "function",
                "name": "find",
                "description": "Find",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
    }


def test_a_strict_function_stays_strict() -> None:
    """And one without parameters takes an empty object."""
    tool = {"type": "function", "function": {"name": "bare", "strict": True}}

    assert convert(HELLO, tools=(tool,))["tools"] == [
        {
            "type": "function",
            "name": "bare",
            "parameters": {"type": "object", "properties": {}},
            "strict": True,
        }
    ]


def test_reasoning_precedes_what_it_led_to() -> None:
    """It is sent as the very object that came in."""
    items = convert(HELLO, answer([THOUGHT], "", CALL), RESULT)["input"]

    assert items[1] is THOUGHT
    assert items[2]["type"] == "function_call"


@pytest.mark.parametrize(
    "kind",
    [
        "compaction",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
    ],
)
def test_what_the_api_did_itself_is_sent_as_it_came(kind: str) -> None:
    """Before the text of the message, which it does not replace."""
    item = {"type": kind, "id": "x_1"}
    items = convert(HELLO, answer([item]), HELLO)["input"]

    assert items[1] is item
    assert [each["type"] for each in items[2:]] == ["message", "message"]


def test_a_whole_answer_is_sent_as_it_came() -> None:
    """Its output takes over the call's id."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "own", "name": "f", "arguments": "{}"}
    items = convert(HELLO, answer([THOUGHT, OWN, call], "own", CALL), RESULT)["input"]

    assert items[1:4] == [THOUGHT, OWN, call]
    assert items[4] == {"type": "function_call_output", "call_id": "own", "output": ""}


@pytest.mark.parametrize("item", [THOUGHT, OWN, {"type": "web_search_call", "id": "ws_1"}])
def test_an_item_is_sent_once(item: dict[str, Any]) -> None:
    """A later answer with its id is converted without its items."""
    items = convert(HELLO, answer([item]), HELLO, answer([item], "again"), HELLO)["input"]

    assert items.count(item) == 1
    assert items[-2] == {"type": "message", "role": "assistant", "content": "again"}


def test_calls_are_converted_behind_a_message_that_came_without_them() -> None:
    """No call is lost, so that no output is without one."""
    items = convert(HELLO, answer([OWN], "own", CALL), RESULT)["input"]

    assert [item["type"] for item in items[1:3]] == ["message", "function_call"]
    assert items[1] is OWN


@pytest.mark.parametrize(
    "part",
    [
        {**OWN, "role": "user"},
        {**OWN, "content": []},
        {"type": "thinking", "thinking": "hm"},
        {"type": ["message"]},
        {"type": "function_call", "call_id": "x" * 65, "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "x", "name": "f.g", "arguments": "{}"},
        {"type": "function_call", "call_id": "x", "name": "f", "arguments": {}},
    ],
)
def test_parts_that_the_api_would_refuse_are_left_out(part: dict[str, Any]) -> None:
    """Those of other providers among them, and an answer that speaks for the user."""
    items = convert(HELLO, answer([part], "I look", CALL), RESULT)["input"]

    assert items[1] == {"type": "message", "role": "assistant", "content": "I look"}


def test_blanks_are_no_instructions() -> None:
    """An empty system prompt is left out."""
    body = build_provider_request("openai_responses", [{**SYSTEM, "content": ""}, HELLO])

    assert body == {"input": [{"type": "message", "role": "user", "content": "hi"}]}
