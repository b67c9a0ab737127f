"""Searches for deferred tools are answered with definitions, within their tokens."""

import json
from typing import Any

import pytest

from formatters.deferred import NOTHING_FOUND, TOO_LONG, write_definition
from formatters.model import Message, Role, Tool, ToolCall
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.app import open_builder
from service.build.tool_search import MAX_SEARCHES, ToolSearch
from service.build.tools import Toolset
from service.config.content import PromptsSettings, RecallSettings, ToolsSettings
from service.config.settings import BudgetSettings, Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import NOW
from tests.validity.anthropic import anthropic as violations

COUNTER = TiktokenTokenizers().counter("o200k_base")
SUBJECTS = ("weather", "flights", "hotels", "invoices", "recipes", "calendar")


def tool(subject: str, words: str = "") -> Tool:
    """Return a tool about a subject."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    description = f"Look up {subject} {words}".strip()
    function = {"name": f"find_{subject}", "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [tool(subject) for subject in SUBJECTS]


def asking(*queries: str) -> Message:
    """Return a message that searches for tools."""
    calls = tuple(
        ToolCall(id=f"c{index}", name="search_tools", arguments={"query": query})
        for index, query in enumerate(queries)
    )
    return Message(id="m", role=Role.AI, content="", tool_calls=calls)


def answers(*queries: str, tools: Any = TOOLS, limit: int = 1_000) -> list[str | None]:
    """Return the answers to the searches of one message."""
    search, message = ToolSearch(Toolset(deferred=tools), limit, COUNTER), asking(*queries)
    return [search(message, call) for call in message.tool_calls]


def named(answer: str | None) -> list[str]:
    """Return the names of the tools that an answer defines."""
    assert answer
    return [json.loads(line)["name"] for line in answer.splitlines()]


def test_the_best_definition_is_first() -> None:
    """All with words of the query follow."""
    (answer,) = answers("the weather")
    assert named(answer) == ["find_weather"]
    (answer,) = answers("look up invoices")
    assert named(answer)[0] == "find_invoices"
    assert len(named(answer)) == len(SUBJECTS)


def test_definitions_keep_to_the_limit() -> None:
    """The searches of one message share it."""
    line = COUNTER.count(write_definition(tool("hotels")))
    (one,) = answers("look up hotels", limit=3 * line + 5)
    assert named(one)[0] == "find_hotels"
    assert COUNTER.count(str(one)) <= 3 * line + 5
    both = answers("look up hotels", "look up flights", limit=2 * line + 5)
    assert [len(named(each)) for each in both] == [1, 1]


def test_what_finds_nothing_says_so() -> None:
    """And so does what finds definitions that don't fit."""
    assert answers("zebra", "") == [NOTHING_FOUND] * 2
    (answer,) = answers("weather", tools=[tool("weather", "word " * 300)], limit=100)
    assert answer == f"{TOO_LONG}find_weather)"


def test_calls_of_others_are_not_answered() -> None:
    """Nor are more searches at once than a model has any use for."""
    message = asking("weather")
    other = ToolCall(id="c", name="call_tool", arguments={})
    assert ToolSearch(Toolset(deferred=TOOLS), 100, COUNTER)(message, other) is None
    assert set(answers(*["weather"] * (MAX_SEARCHES + 1))) == {None}


CALL = {"id": "c1", "name": "search_tools", "arguments": {"query": "hotel"}}
SEARCHING = {"id": "m1", "role": "AI", "content": "", "metadata": {"tool_calls": [CALL]}}
ANSWER = {"id": "m2", "role": "TOOL", "content": "Mine.", "metadata": {"tool_call_id": "c1"}}


async def built(*run: Any, tools: Any = (), past: Any = None, **settings: Any) -> BuildSuccess:
    """Build a context with deferred tools."""
    context: dict[str, Any] = {"max_tokens": 8000, "reserve_tokens": 2000, "past": past}
    context |= {"layout": settings.pop("layout", "chat"), "format": settings.pop("format", None)}
    content = {
        "history": [{"id": "m0", "content": "Where do I sleep?"}, *run],
        "tools": None if tools is None else list(tools),
        "metadata": {"context": {**context, "explain": True}},
    }
    settings = {"tools": ToolsSettings(defer=True), **settings}
    async with open_builder(Settings(**settings)) as builder:
        registry = builder.sources.tools
        assert isinstance(registry, InMemoryToolRegistry)
        for each in TOOLS:
            registry.register(each)
        fields = {"owner_key": "o", "timestamp": NOW, "content": content}
        request = BuildRequest.model_validate(fields, context={"received_at": NOW})
        response = await builder.build(request)
    assert response.content.status == "success", response.content
    return response.content


def offered(content: BuildSuccess) -> list[str]:
    """Return the names of the tools in the array."""
    return [each["function"]["name"] for each in content.tools]


async def test_a_registry_is_deferred() -> None:
    """Two tools are offered, and a line says what there is."""
    content = await built()
    assert offered(content) == ["search_tools", "call_tool"]
    assert "- find_hotels: Look up hotels\n" in content.messages[1]["content"]


async def test_what_a_request_chooses_is_offered() -> None:
    """Names, definitions and none mean what they mean without deferred tools."""
    assert offered(await built(tools=["find_hotels"])) == ["find_hotels"]
    assert offered(await built(tools=[tool("boats")])) == ["find_boats"]
    assert offered(await built(tools=None)) == []


@pytest.mark.parametrize("layout", ["chat", "tagged"])
async def test_a_search_in_the_run_is_answered(layout: str) -> None:
    """With the definitions, though the request has no result; and its row is kept whole."""
    content = await built(SEARCHING, layout=layout)
    assert named(content.messages[-1]["content"]) == ["find_hotels"]
    assert content.messages[-1]["tool_call_id"] == "c1"
    assert [(each.message_ids, each.decision) for each in content.decisions] == [(["m1"], "kept")]
    assert content.tools == (await built()).tools


async def test_a_result_of_the_orchestrator_takes_precedence() -> None:
    """It may search by itself."""
    content = await built(SEARCHING, ANSWER)
    assert content.messages[-1]["content"] == "Mine."


async def test_a_search_in_the_history_is_answered_as_in_the_run() -> None:
    """So that a cached prefix stays."""
    in_run = (await built(SEARCHING)).messages[-1]
    content = await built(past=[{"id": "p0", "role": "HUMAN", "content": "Hotels?"}, SEARCHING])
    assert in_run in content.messages
    shown = content.usage
    assert shown.cacheable_prefix == shown.total - shown.tools - shown.blocks["THIS_MOMENT"]


async def test_names_alone_are_enough_of_the_block() -> None:
    """The lines of deferred tools stay, if there are any, however the block is cut."""
    names = await built(prompts=PromptsSettings(capabilities="names"))
    assert "- find_hotels: Look up hotels\n" in names.messages[1]["content"]
    none = await built(prompts=PromptsSettings(capabilities="none"))
    assert "CAPABILITIES" not in none.usage.blocks


async def test_a_share_leaves_deferred_tools_alone() -> None:
    """They take less than any share is meant for."""
    budget = BudgetSettings(tools_share=0.01)
    assert offered(await built(budget=budget)) == ["search_tools", "call_tool"]


@pytest.mark.parametrize("searches", [1, MAX_SEARCHES])
async def test_small_windows_hold_what_is_found(searches: int) -> None:
    """A search takes a quarter of the available tokens at most."""
    calls = [{**CALL, "id": f"c{n}", "arguments": {"query": "look up"}} for n in range(searches)]
    run = {**SEARCHING, "metadata": {"tool_calls": calls}}
    content = await built(run, budget=BudgetSettings(tokenizer="o200k_base"))
    assert content.usage.total <= content.usage.available


async def test_other_forms_know_two_tools_alone() -> None:
    """Only Anthropic's API keeps the definitions of others out of the prompt; its calls find them.

    The account is of the messages in OpenAI's form.
    """
    plain = await built(SEARCHING)
    for form in ("openai_responses", "gemini"):
        body = (await built(SEARCHING, format=form)).provider_request
        assert "find_recipes" not in json.dumps((body or {})["tools"])

    content = await built(SEARCHING, format="anthropic")

    body = content.provider_request or {}
    assert violations(body) == []
    deferred = [each["name"] for each in body["tools"] if each.get("defer_loading")]
    assert deferred == [f"find_{subject}" for subject in SUBJECTS]
    (result,) = body["messages"][-1]["content"]
    assert result["content"] == [{"type": "tool_reference", "tool_name": "find_hotels"}]
    assert (content.tools, content.usage, content.messages) == (
        plain.tools,
        plain.usage,
        plain.messages,
    )


async def test_recall_is_offered_next_to_the_search() -> None:
    """Both are always in the array."""
    content = await built(SEARCHING, recall=RecallSettings(tool=True), format="anthropic")

    assert offered(content) == ["search_tools", "call_tool", "recall"]
    assert named(content.messages[-1]["content"]) == ["find_hotels"]
    tools = (content.provider_request or {})["tools"]
    assert [each["name"] for each in tools if not each.get("defer_loading")] == offered(content)
    assert [each["name"] for each in tools if "cache_control" in each] == ["recall"]
