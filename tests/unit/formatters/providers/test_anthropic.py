from typing import Any

import pytest

from formatters.deferred import STAND_INS
from formatters.providers.alternation import CONTINUE
from formatters.providers.formats import build_provider_request
from tests.validity.anthropic import anthropic as violations

MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEM = {"role": "system", "content": "Be kind."}
HELLO = {"role": "user", "content": "hi"}
FIND = {
    "type": "function",
    "function": {"name": "find", "description": "Find", "parameters": {"type": "object"}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def answer(parts: object = None, content: str = "I look", *calls: Any) -> dict[str, Any]:
    """Return an assistant's message."""
    called = {"tool_calls": list(calls)} if calls else {}
    return {"role": "assistant", "content": content, "provider_parts": parts, **called}


def convert(*messages: Any, tools: tuple[Any, ...] = (FIND,), stable: int = 0) -> dict[str, Any]:
    """Return the body of a conversation, which has to be valid."""
    body = build_provider_request("anthropic", [SYSTEM, *messages], tools, stable)
    assert body is not None
    assert violations(body) == []
    return body


def text(words: str, **more: Any) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words, **more}


def test_a_whole_conversation() -> None:
    """The system prompt is separate, and results open the message after their call."""
    now = {"role": "user", "content": "And now?"}
    body = convert(HELLO, answer(None, "I look", CALL), RESULT, now)

    assert body == {
        "tools": [
            {"name": "find", "description": "Find", "input_schema": {"type": "object"}, **MARK}
        ],
        "system": [text("Be kind.")],
        "messages": [
            {"role": "user", "content": [text("hi")]},
            {
                "role": "assistant",
                "content": [
                    text("I look"),
                    {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                    text("And now?"),
                ],
            },
        ],
    }


def test_cache_marks() -> None:
    """They end the tools, the system prompt and the last stable message."""
    blocks = [HELLO, {"role": "user", "content": "stable"}, {"role": "user", "content": "new"}]
    body = convert(*blocks, stable=3)

    assert body["system"] == [text("Be kind.", **MARK)]
    assert body["messages"][0]["content"] == [text("hi"), text("stable", **MARK), text("new")]


def test_the_mark_of_the_tools_is_the_last_ones() -> None:
    """One mark covers everything before it; the order stays."""
    fetch = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object"}}}
    body = convert(HELLO, tools=(fetch, FIND))

    assert [(tool["name"], "cache_control" in tool) for tool in body["tools"]] == [
        ("fetch", False),
        ("find", True),
    ]


def test_tools_keep_their_order_next_to_marks_of_the_callers_own() -> None:
    """Each is declared once."""
    fetch = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object"}}}
    body = convert(HELLO, answer([text("own", **MARK)]), HELLO, tools=(fetch, FIND))

    assert [tool["name"] for tool in body["tools"]] == ["fetch", "find"]


def test_a_message_keeps_what_precedes_its_mark() -> None:
    """Only its last block is marked."""
    body = convert(HELLO, answer(None, "I look", CALL), RESULT, stable=3)
    spoken, called = body["messages"][1]["content"]

    assert spoken == text("I look")
    assert called == {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": 1}, **MARK}


def test_the_newest_result_of_a_run_has_the_fourth_mark() -> None:
    """The next step of the run repeats all that precedes it."""
    called = answer(None, "", CALL, {**CALL, "id": "c2"})
    run = (HELLO, called, RESULT, {**RESULT, "tool_call_id": "c2"})
    body = convert(*run, tools=(FIND,), stable=2)
    results = body["messages"][2]["content"]

    assert ["cache_control" in result for result in results] == [False, True]
    assert str(body).count("cache_control") == 4
    assert violations(body) == []


def test_no_mark_where_nothing_is_stable() -> None:
    """The tools are still the same in the next build."""
    body = convert(HELLO)

    assert body["system"] == [text("Be kind.")]
    assert body["messages"][0]["content"] == [text("hi")]
    assert "cache_control" in body["tools"][-1]


def test_a_call_or_a_result_can_carry_the_mark() -> None:
    """Whatever block of ours ends the stable messages."""
    called = answer(None, "", CALL)
    messages = (HELLO, called, RESULT, HELLO)

    assert "cache_control" in convert(*messages, stable=3)["messages"][1]["content"][-1]
    assert "cache_control" in convert(*messages, stable=4)["messages"][2]["content"][0]


def test_what_came_as_it_is_carries_no_mark() -> None:
    """The mark moves to the last block of ours before it."""
    own = answer([THOUGHT, text("own")])
    body = convert(HELLO, own, HELLO, stable=3)
    only = convert(own, HELLO, stable=2)

    assert body["messages"][0]["content"] == [text("hi", **MARK)]
    assert body["messages"][1]["content"] == [THOUGHT, text("own")]
    assert not any("cache_control" in each for each in only["messages"][1]["content"])


def test_marks_of_the_callers_own_replace_ours() -> None:
    """Two hands would soon be over the limit, or mix lifetimes in the wrong order."""
    body = convert(HELLO, answer([text("own", **MARK)]), HELLO, stable=2)

    assert [*body["tools"], *body["system"], *body["messages"][0]["content"]] == [
        {"name": "find", "description": "Find", "input_schema": {"type": "object"}},
        text("Be kind."),
        text("hi"),
    ]


def test_thoughts_precede_what_is_converted() -> None:
    """They are sent as the very objects that came in."""
    parts = [THOUGHT, {"type": "redacted_thinking", "data": "x"}]
    content = convert(HELLO, answer(parts, "I look", CALL), RESULT)["messages"][1]["content"]

    assert content[0] is parts[0]
    assert content[1] is parts[1]
    assert [block["type"] for block in content[2:]] == ["text", "tool_use"]


def test_a_whole_answer_is_sent_as_it_came() -> None:
    """Its result takes over the id, and nothing is said twice."""
    call = {"type": "tool_use", "id": "toolu_9", "name": "other", "input": {}}
    body = convert(HELLO, answer([THOUGHT, text("own"), call], "own", CALL), RESULT)

    assert body["messages"][1]["content"] == [THOUGHT, text("own"), call]
    assert body["messages"][2]["content"][0]["tool_use_id"] == "toolu_9"


def test_calls_are_converted_behind_a_text_that_came_without_them() -> None:
    """No call is lost, so that no result is without one."""
    content = convert(HELLO, answer([text("own")], "own", CALL), RESULT)["messages"][1]["content"]

    assert [block["type"] for block in content] == ["text", "tool_use"]


@pytest.mark.parametrize(
    "part",
    [
        text(" "),
        {"type": "text"},
        {"type": "odd"},
        {"type": ["text"]},
        {"type": "image"},
        {"type": "tool_use", "id": "a.b", "name": "f", "input": {}},
        {"type": "tool_use", "id": "a", "name": "f g", "input": {}},
        {"type": "tool_use", "id": "a", "name": "f", "input": "{}"},
        {"type": "reasoning", "id": "rs_1"},
        {"text": "of Gemini's"},
    ],
)
def test_parts_that_the_api_would_refuse_are_left_out(part: dict[str, Any]) -> None:
    """Those of other providers among them."""
    body = convert(HELLO, answer([part], "I look", CALL), RESULT)

    assert body["messages"][1]["content"][0] == text("I look")


@pytest.mark.parametrize(
    "kind",
    [
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
    ],
)
def test_what_the_api_did_itself_is_sent_as_it_came(kind: str) -> None:
    """Before the text of the message, which it does not replace."""
    part = {"type": kind}
    body = convert(HELLO, answer([part]), HELLO)

    assert body["messages"][1]["content"] == [part, text("I look")]


@pytest.mark.parametrize("kind", ["image", "document", "search_result"])
def test_what_a_user_shows_is_sent_as_it_came(kind: str) -> None:
    """An assistant shows nothing."""
    part = {"type": kind}
    body = convert({**HELLO, "provider_parts": [part]}, answer([part]), HELLO)

    assert body["messages"][0]["content"] == [part, text("hi")]
    assert body["messages"][1]["content"] == [text("I look")]


def test_a_picture_of_the_user_precedes_the_text() -> None:
    """A user's message can have parts of its own too."""
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    body = convert({"role": "user", "content": "This?", "provider_parts": [picture]})

    assert body["messages"][0]["content"] == [picture, text("This?")]


def test_two_answers_of_which_the_second_thought_first() -> None:
    """A thought has to open its message."""
    messages = convert(HELLO, answer(), answer([THOUGHT]), HELLO)["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant"] * 2 + ["user"]
    assert messages[2]["content"] == [text(CONTINUE)]
    assert messages[3]["content"][0] is THOUGHT


def test_called_tools_are_declared_where_none_is_offered() -> None:
    """The API asks for it; the model may not call them."""
    body = convert(HELLO, answer(None, "", CALL), RESULT, tools=())

    assert body["tools"] == [{"name": "find", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert not {"tools", "tool_choice"} & set(convert(HELLO, tools=()))


def test_a_call_that_came_is_declared_by_its_own_name() -> None:
    """Whatever the message calls it, the API reads what is sent."""
    own = {"type": "tool_use", "id": "toolu_9", "name": "other", "input": {}}
    body = convert(HELLO, answer([own], "", CALL), RESULT, tools=())

    assert [tool["name"] for tool in body["tools"]] == ["other"]


def test_a_schema_keeps_what_the_api_takes() -> None:
    """Alternatives at the top of a schema are refused there."""
    parameters = {"type": "object", "properties": {"q": {"anyOf": []}}, "anyOf": [], "x": 1}
    tool = {"type": "function", "function": {"name": "find", "parameters": parameters}}
    bare = {"type": "function", "function": {"name": "bare"}}

    assert convert(HELLO, tools=(tool, bare))["tools"] == [
        {
            "name": "find",
            "input_schema": {"type": "object", "properties": {"q": {"anyOf": []}}, "x": 1},
        },
        {"name": "bare", "input_schema": {"type": "object", "properties": {}}, **MARK},
    ]


def test_blanks_are_no_blocks() -> None:
    """The API refuses a text of blanks; a result may be without content."""
    empty = {**RESULT, "content": "\n"}
    messages = [{**SYSTEM, "content": " "}, HELLO, answer(None, " ", CALL), empty]
    body: dict[str, Any] = build_provider_request("anthropic", messages) or {}

    assert "system" not in body
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "c1", **MARK}]


def deferring(name: str) -> dict[str, Any]:
    """Return a tool that a search finds."""
    function = {"name": name, "description": "Find", "parameters": {"type": "object"}}
    return {"type": "function", "function": function, "defer_loading": True}


SEARCH = {"id": "s1", "type": "function", "function": {"name": "search_tools", "arguments": "{}"}}


def found(content: str, *tools: Any) -> dict[str, Any]:
    """Convert a search with this result."""
    result = {"role": "tool", "tool_call_id": "s1", "content": content}
    return convert(HELLO, answer(None, "", SEARCH), result, tools=tools)


def test_deferred_tools_follow_the_others() -> None:
    """The cache mark is on the last tool of the prompt; found tools are references."""
    tools = (deferring("a.b"), *STAND_INS, deferring("c"))

    body = found('{"name": "a.b"}\n{"name": "c"}', *tools)

    names = [tool["name"] for tool in body["tools"]]
    assert names[:2] == ["search_tools", "call_tool"]
    assert [tool["name"] for tool in body["tools"] if "cache_control" in tool] == ["call_tool"]
    assert [tool["name"] for tool in body["tools"] if tool.get("defer_loading")] == names[2:]
    result = body["messages"][-1]["content"][0]
    assert [part["tool_name"] for part in result["content"]] == names[2:]


def test_other_results_of_a_search_stay_text() -> None:
    """Those that name no tool, or one that isn't deferred."""
    for content in ("(No tool has these words.)", '{"name": "find"}'):
        result = found(content, *STAND_INS, deferring("c"))["messages"][-1]["content"][0]
        assert result["content"] == content


def test_nothing_is_deferred_without_a_search() -> None:
    """Since no search could find it."""
    (tool,) = convert(HELLO, tools=(deferring("c"),))["tools"]
    assert tool["name"] == "c"
    assert "defer_loading" not in tool
