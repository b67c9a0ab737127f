"""Contexts with the tool `recall`, and with long results in part."""

import json
import re
from typing import Any

import pytest

from bench.recounts import cost, cost_of_tools, parts_of, tokens
from formatters.handles import make_handle
from formatters.model import Row
from prompts.recall_tool import RECALL_TOOL
from service.builder import ContextBuilder
from service.config.content import RecallSettings, ToolsSettings
from service.config.settings import BudgetSettings, MemorySettings, Settings
from service.wire.recall import RecallContent, RecallRequest
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import SEARCH, MakeBuilder, row
from tests.unit.service.test_builder import success
from tests.validity.forms import VALIDATORS

CALL = {"id": "c1", "name": "search", "arguments": {}}
LOG = "\n".join(f"entry {n} of the log" for n in range(400))
ROWS: list[Row] = [
    *(row(n, ("HUMAN", "AI")[n % 2], f"On soup, part {n}") for n in range(30)),
    row(30, "AI", "", metadata={"tool_calls": [CALL]}),
    row(31, "TOOL", LOG, run_id="r30", metadata={"tool_call_id": "c1"}),
]
RUN: list[Row] = [
    {"id": "x1", "role": "AI", "metadata": {"tool_calls": [{**CALL, "id": "d1"}]}},
    {"id": "x2", "role": "TOOL", "content": LOG, "metadata": {"tool_call_id": "d1"}},
    {"id": "x3", "role": "AI", "metadata": {"tool_calls": [{**CALL, "id": "d2"}]}},
    {"id": "x4", "role": "TOOL", "content": LOG, "metadata": {"tool_call_id": "d2"}},
]


def request(*run: Row, tools: Any = None, **context: Any) -> BuildRequest:
    """Return a request with the tool, and options."""
    options = {"recall_tool": True, "explain": True, "memory_limit": 10, **context}
    history = [{"id": "q", "content": "And now?"}, *run]
    content = {"history": history, "tools": tools, "metadata": {"context": options}}
    return BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})


async def built(builder: ContextBuilder, *run: Row, **options: Any) -> BuildSuccess:
    """Build over the stored rows; the counts are right."""
    await builder.history.append("o", ROWS)
    content = success(await builder.build(request(*run, **options)))
    assert content.usage.tools == cost_of_tools(content.tools)
    assert sum(map(cost, content.messages)) + content.usage.tools == content.usage.total
    return content


async def recalled(builder: ContextBuilder, text: str) -> list[list[str]]:
    """Recall by every handle in a text; return the ids of the messages that each names."""
    found = []
    for handle in re.findall(r"(?:recall id|newest:) (\w{8})\b", text):
        raw = {"owner_key": "o", "content": {"ids": [handle], "max_tokens": 4_000}}
        answer = (await builder.recall(RecallRequest.model_validate(raw))).content
        assert answer.status == "success"
        assert all(message.whole for message in answer.messages)
        found.append([id_ for message in answer.messages for id_ in message.message_ids])
    return found


def line(content: BuildSuccess) -> str:
    """Return the text about messages that aren't shown."""
    lines = parts_of(content).texts["THIS_MOMENT"].split("\n")
    return next((each for each in lines if "not shown" in each), "")


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_the_model_gets_the_tool_and_a_line(make_builder: MakeBuilder, layout: str) -> None:
    """The line counts what was left out, at the end, where the prefix doesn't change."""
    builder = make_builder()
    content = await built(builder, layout=layout)

    assert content.tools == [RECALL_TOOL]
    # of the result only the call is shown, or it takes the place of two messages
    newest = "m31" if layout == "tagged" else "m21"
    missing = (
        "21 earlier messages and 1 tool result" if layout == "tagged" else "22 earlier messages"
    )
    assert line(content) == f"({missing} are not shown; call recall; newest: {make_handle(newest)})"
    assert await recalled(builder, line(content)) == [[newest]]
    assert "### recall\n" in content.messages[1]["content"]


async def test_where_all_is_shown_there_is_no_line(make_builder: MakeBuilder) -> None:
    """The tool stays, so that the prefix does."""
    builder = make_builder()
    empty = success(await builder.build(request()))
    assert (line(empty), empty.tools) == ("", [RECALL_TOOL])

    everything = await built(builder, layout="chat", memory_limit=None)
    assert (line(everything), everything.tools) == ("", [RECALL_TOOL])


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_messages_that_are_cut_are_counted(make_builder: MakeBuilder, layout: str) -> None:
    """The handle of the newest fetches the rest; in chat none is cut."""
    builder = make_builder()
    await builder.history.append("o", [row(0, "HUMAN", "On soup. " * 99), row(1, "AI", "Yes")])
    content = success(await builder.build(request(layout=layout)))

    missing = f"(1 earlier message is not shown; call recall; newest: {make_handle('m0')})"
    assert line(content) == (missing if layout == "tagged" else "")
    assert await recalled(builder, line(content)) == ([["m0"]] if layout == "tagged" else [])


async def test_the_prefix_stays_as_the_history_grows(make_builder: MakeBuilder) -> None:
    """Numbers and handles come after it."""
    builder = make_builder()
    options = {"layout": "chat", "strategy": "stable_window", "memory_limit": None}
    before = await built(builder, **options)
    await builder.history.append("o", [row(40, "HUMAN", "One more")])
    after = await built(builder, **options)

    shared = before.messages[:-1]
    assert after.messages[: len(shared)] == shared
    assert after.tools == before.tools
    assert after.usage.cacheable_prefix > before.usage.cacheable_prefix > 0


async def test_it_is_switched_on_by_the_configuration(make_builder: MakeBuilder) -> None:
    """A request may switch it off."""
    builder = make_builder(settings=Settings(recall=RecallSettings(tool=True)))
    assert (await built(builder, recall_tool=None)).tools == [RECALL_TOOL]
    assert (await built(builder, recall_tool=False)).tools == []


@pytest.mark.parametrize("form", [*VALIDATORS])
async def test_every_provider_takes_the_tool(make_builder: MakeBuilder, form: str) -> None:
    """After the tools of the request, in the form of each."""
    content = await built(make_builder(tools=[SEARCH]), tools=[], format=form)

    assert [tool["function"]["name"] for tool in content.tools][-1] == "recall"
    body = content.provider_request
    assert body
    assert "Give one of query, ids, around and grep." in json.dumps(body)
    assert VALIDATORS[form](body, []) == []


async def test_the_tool_is_kept_within_the_share(make_builder: MakeBuilder) -> None:
    """Others give way; all of them together keep to their tokens."""
    many = [
        {**SEARCH, "function": {**SEARCH["function"], "name": f"search_{n}"}}  # type: ignore[dict-item] # a definition
        for n in range(20)
    ]
    for limit in (600, 900, 1_200):
        content = await built(make_builder(), tools=many, tools_tokens=limit, memory_limit=0)
        names = [tool["function"]["name"] for tool in content.tools]
        skills = tokens(parts_of(content).texts["CAPABILITIES"]) + 4
        assert names[-1] == "recall"
        assert 0 < len(names) - 1 < 20
        assert content.usage.tools + skills <= limit


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"past": ROWS}, "isn't stored"),
        ({"tools": [{**RECALL_TOOL}]}, "another tool is called recall"),
    ],
)
async def test_where_it_cannot_work_it_is_not_offered(
    make_builder: MakeBuilder, options: dict[str, Any], why: str
) -> None:
    """A warning says why, and nothing refers to it."""
    content = await built(make_builder(), **options)

    (warning,) = (each for each in content.warnings if each.code == "recall_not_offered")
    assert why in warning.detail
    assert line(content) == ""
    assert len(content.tools) == len(options.get("tools") or ())


async def test_cleared_results_have_handles(make_builder: MakeBuilder) -> None:
    """Of the run and of history; the handles recall them, as they are stored."""
    builder = make_builder(settings=Settings(budget=BudgetSettings(reserve_tokens=0)))
    await builder.history.append("o", RUN)
    content = await built(builder, *RUN, max_tokens=6_500, memory_limit=0)

    cleared = next(str(m["content"]) for m in content.messages if m["role"] == "tool")
    assert cleared == f"[tool result cleared; recall id {make_handle('x2')}]"
    assert "and 1 tool result are not shown" in line(content)  # of history only the call
    assert await recalled(builder, cleared) == [["x2"]]
    assert await recalled(builder, line(content)) == [["m31"]]
    decisions = {d.message_ids[0]: d.decision for d in content.decisions if d.block == "RUN"}
    assert (decisions["x2"], decisions["x3"]) == ("cleared", "kept")


async def test_results_without_ids_have_no_handles(make_builder: MakeBuilder) -> None:
    """No recall finds them, so they aren't counted either."""
    builder = make_builder(settings=Settings(budget=BudgetSettings(reserve_tokens=0)))
    run = [{key: value for key, value in message.items() if key != "id"} for message in RUN]
    content = await built(builder, *run, max_tokens=6_500, memory_limit=0)

    assert "[tool result cleared]" in [message["content"] for message in content.messages]
    assert line(content).startswith("(31 earlier messages and 1 tool result are not shown;")
    assert await recalled(builder, line(content)) == [["m31"]]


@pytest.mark.parametrize("tool", [False, True])
async def test_long_results_are_shown_in_part(make_builder: MakeBuilder, *, tool: bool) -> None:
    """In the chat layout and in the run; without the tool there are no handles."""
    builder = make_builder(settings=Settings(memory=MemorySettings(offload_tokens=200)))
    await builder.history.append("o", RUN)
    options: dict[str, Any] = {"layout": "chat", "recall_tool": tool, "memory_limit": None}
    content = await built(builder, *RUN, **options)
    results = [m["content"] for m in content.messages if m["role"] == "tool"]

    assert len(results) == 3
    for name, result in zip(("m31", "x2", "x4"), results, strict=True):
        mark = f"of 400; recall id {make_handle(name)}]" if tool else "of 400]"
        assert mark in result
        assert await recalled(builder, result) == ([[name]] if tool else [])
        assert 150 < tokens(result) <= 200
        assert result.startswith("entry 0 of the log\n")
        assert result.endswith("\nentry 399 of the log")
    assert content.previewed == 3
    assert [d.reason for d in content.decisions if d.decision == "previewed"] == ["offloaded"] * 3
    # those of the run have handles there
    assert ("(1 tool result is not shown" in line(content)) == tool


@pytest.mark.parametrize("past", [True, False])
async def test_long_results_that_are_not_stored_have_no_handles(
    make_builder: MakeBuilder, *, past: bool
) -> None:
    """As those in a request's own history, and messages of the run without ids."""
    builder = make_builder(settings=Settings(memory=MemorySettings(offload_tokens=200)))
    options: dict[str, Any] = {"layout": "chat", "memory_limit": None}
    run = RUN if past else [{**message, "id": None} for message in RUN]
    asked = request(*run, **options, past=ROWS if past else None)
    content = success(await builder.build(asked))

    results = [m["content"] for m in content.messages if m["role"] == "tool"]
    assert len(results) == (3 if past else 2)
    assert all("[left out: lines " in result for result in results)
    assert "recall id" not in json.dumps(content.messages)


def test_the_arguments_of_the_tool_are_those_of_a_recall() -> None:
    """An orchestrator passes them on as they are."""
    function: Any = RECALL_TOOL["function"]
    assert set(function["parameters"]["properties"]) <= set(RecallContent.model_fields)


async def test_deferred_tools_and_the_tool_go_together(make_builder: MakeBuilder) -> None:
    """The registry is searched, and the model recalls; one of the registry may have its name."""
    settings = Settings(tools=ToolsSettings(defer=True), budget=BudgetSettings(tools_share=0.1))
    content = await built(make_builder(tools=[SEARCH], settings=settings), tools=[])
    assert [tool["function"]["name"] for tool in content.tools] == [
        "search_tools",
        "call_tool",
        "recall",
    ]

    taken = await built(make_builder(tools=[RECALL_TOOL], settings=settings), tools=[])
    assert [tool["function"]["name"] for tool in taken.tools] == ["search_tools", "call_tool"]
    assert "recall_not_offered" in [warning.code for warning in taken.warnings]
