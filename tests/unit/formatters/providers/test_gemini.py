from typing import Any

import pytest

from formatters.providers.formats import build_provider_request
from formatters.providers.gemini import FOREIGN_SIGNATURE
from tests.validity.gemini import gemini as violations

SYSTEM = {"role": "system", "content": "Be kind."}
HELLO = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"q": {"type": ["string", "null"]}}, "anyOf": []}
FIND = {
    "type": "function",
    "function": {"name": "find", "description": "Find", "parameters": SCHEMA},
}
CALLS = [
    {"id": id_, "type": "function", "function": {"name": "find", "arguments": '{"q": "a"}'}}
    for id_ in ("c.1", "c.2")
]
RESULTS = [{"role": "tool", "tool_call_id": id_, "content": id_} for id_ in ("c.2", "c.1")]


def answer(parts: object = None, content: str = "I look", *calls: Any) -> dict[str, Any]:
    """Return an assistant's message."""
    called = {"tool_calls": list(calls)} if calls else {}
    return {"role": "assistant", "content": content, "provider_parts": parts, **called}


def convert(*messages: Any, tools: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Return the body of a conversation, which has to be valid."""
    body = build_provider_request("gemini", [SYSTEM, *messages], tools)
    assert body is not None
    assert violations(body) == []
    return body


def responded(id_: str) -> dict[str, Any]:
    """Return a part that answers a call."""
    return {"functionResponse": {"id": id_, "name": "find", "response": {"output": id_}}}


def test_a_whole_conversation() -> None:
    """Responses have a content of their own, between the calls and what the user says next."""
    body = convert(HELLO, answer(None, "I look", *CALLS), *RESULTS, HELLO, tools=(FIND,))

    assert body == {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I look"},
                    {
                        "functionCall": {"id": "c.1", "name": "find", "args": {"q": "a"}},
                        "thoughtSignature": FOREIGN_SIGNATURE,
                    },
                    {"functionCall": {"id": "c.2", "name": "find", "args": {"q": "a"}}},
                ],
            },
            {"role": "user", "parts": [responded("c.2"), responded("c.1")]},
            {"role": "user", "parts": [{"text": "hi"}]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "find", "description": "Find", "parametersJsonSchema": SCHEMA}
                ]
            }
        ],
    }


def test_a_function_without_parameters_declares_none() -> None:
    """The reference leaves them out then."""
    bare = {"type": "function", "function": {"name": "9.bare"}}
    ((declared,),) = (
        tool["functionDeclarations"] for tool in convert(HELLO, tools=(bare,))["tools"]
    )

    assert set(declared) == {"name"}
    assert declared["name"].startswith("_9_bare_")


@pytest.mark.parametrize("style", ["functionCall", "function_call"])
def test_a_whole_answer_is_sent_as_it_came(style: str) -> None:
    """In either casing; without an id its response has none, and the name is the call's."""
    signed = {style: {"name": "own", "args": {}}, "thoughtSignature": "c2ln"}
    body = convert(HELLO, answer([signed], "", CALLS[0]), RESULTS[1])

    assert body["contents"][1]["parts"][0] is signed
    assert body["contents"][2]["parts"] == [
        {"functionResponse": {"name": "own", "response": {"output": "c.1"}}}
    ]


def test_calls_without_ids_repeat_none() -> None:
    """Two of them in one answer are sent as they came, each with its response."""
    own: list[dict[str, Any]] = [
        {"functionCall": {"name": name, "args": {}}} for name in ("one", "two")
    ]
    body = convert(HELLO, answer(own, "", *CALLS), *RESULTS[::-1])

    assert body["contents"][1]["parts"] == own
    assert body["contents"][2]["parts"] == [
        {"functionResponse": {"name": "one", "response": {"output": "c.1"}}},
        {"functionResponse": {"name": "two", "response": {"output": "c.2"}}},
    ]


def test_the_id_of_a_call_that_came_is_kept() -> None:
    """Its response takes it over."""
    own = {"functionCall": {"id": "own_1", "name": "own", "args": {}}}
    body = convert(HELLO, answer([own], "", CALLS[0]), RESULTS[1])

    assert body["contents"][1]["parts"] == [own]
    assert body["contents"][2]["parts"][0]["functionResponse"]["id"] == "own_1"


def test_nothing_precedes_a_thought() -> None:
    """An answer that a thought leads has a content of its own."""
    thought = {"text": "hm", "thought": True}
    body = convert(HELLO, answer(None, "One"), answer([thought], "Two"), HELLO)

    assert [content["role"] for content in body["contents"]] == [
        *("user", "model", "user", "model", "user")
    ]
    assert body["contents"][3]["parts"] == [thought, {"text": "Two"}]


@pytest.mark.parametrize(
    "part",
    [
        {"text": "hm", "thought": True},
        {"text": "", "thoughtSignature": "c2ln"},
        {"text": "", "thought_signature": "c2ln"},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"executable_code": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
        {"code_execution_result": {"outcome": "OUTCOME_OK"}},
        {"tool_call": {"id": "t"}},
        {"toolResponse": {"id": "t"}},
        {"tool_response": {"id": "t"}},
        {"toolCall": {"id": "t"}, "text": None},
    ],
)
def test_other_parts_precede_the_text(part: dict[str, Any]) -> None:
    """They are not what the message says."""
    body = convert(HELLO, answer([part]), HELLO)

    assert body["contents"][1]["parts"] == [part, {"text": "I look"}]


@pytest.mark.parametrize(
    "part",
    [
        {"text": ""},
        {"text": 7},
        {"text": "a", "functionCall": {"name": "f"}},
        {"thoughtSignature": "c2ln"},
        {"functionCall": "find"},
        {"functionCall": {"name": "a b"}},
        {"functionCall": {"name": "a.b"}},  # which the API accepts, but no tool is offered so
        {"functionCall": {"name": "f", "args": "{}"}},
        {"functionCall": {"name": "f", "id": 7}},
        {"inlineData": {"mimeType": "image/png", "data": ""}},
        {"type": "text", "text": None},
    ],
)
def test_parts_that_the_api_would_refuse_are_left_out(part: dict[str, Any]) -> None:
    """What holds nothing, or two things, is no part."""
    body = convert(HELLO, answer([part], "I look", CALLS[0]), RESULTS[1])

    assert body["contents"][1]["parts"][0] == {"text": "I look"}


def test_a_text_that_came_replaces_the_text() -> None:
    """A picture of the user's is before it."""
    picture = {"inlineData": {"mimeType": "image/png", "data": "aaaa"}}
    asked = {"role": "user", "content": "This?", "provider_parts": [picture]}
    body = convert(asked, answer([{"text": "own", "thoughtSignature": "c2ln"}]), HELLO)

    assert body["contents"][0]["parts"] == [picture, {"text": "This?"}]
    assert body["contents"][1]["parts"] == [{"text": "own", "thoughtSignature": "c2ln"}]


@pytest.mark.parametrize("key", ["inlineData", "inline_data", "fileData", "file_data"])
def test_what_a_user_shows_is_sent_as_it_came(key: str) -> None:
    """In either casing."""
    part = {key: {"mimeType": "image/png"}}
    body = convert({"role": "user", "content": "This?", "provider_parts": [part]})

    assert body["contents"][0]["parts"] == [part, {"text": "This?"}]


def test_blanks_are_no_parts() -> None:
    """A system prompt of blanks is none; an empty result is an empty output."""
    called = answer(None, "", CALLS[0])
    messages = [{**SYSTEM, "content": ""}, called, {**RESULTS[1], "content": ""}]
    body: dict[str, Any] = build_provider_request("gemini", messages) or {}

    assert "systemInstruction" not in body
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]
    assert body["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": ""}
