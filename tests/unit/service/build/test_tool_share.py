"""If tools exceed their share, requested ones stay, and those in use."""

import json
from typing import Any

import pytest

from service.adapters.tools.registry import InMemoryToolRegistry
from service.app import open_builder
from service.config.content import PromptsSettings
from service.config.settings import BudgetSettings, Settings
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess

SUBJECTS = ("weather", "flights", "hotels", "invoices", "recipes", "calendar", "music", "parcels")


#: A run that has called a tool.
IN_FLIGHT = [
    {
        "role": "AI",
        "content": "",
        "metadata": {"tool_calls": [{"id": "c1", "name": "find_weather", "arguments": {}}]},
    },
    {"role": "TOOL", "content": "Rain", "metadata": {"tool_call_id": "c1"}},
]


def tool(subject: str) -> dict[str, Any]:
    """Return a tool about a subject."""
    schema = {"type": "object", "properties": {"q": {"type": "string", "description": "What."}}}
    function = {
        "name": f"find_{subject}",
        "description": f"Look up {subject} in the register of the town and tell what there is.",
        "parameters": schema,
    }
    return {"type": "function", "function": function}


async def built(
    question: str, *, share: float | None = None, run: Any = (), **asked: Any
) -> BuildSuccess:
    """Build a context with a registry of tools about all subjects."""
    tools = asked.pop("tools", [])
    context = {"max_tokens": 8000, "reserve_tokens": 2000, **asked}
    content = {
        "history": [{"content": question}, *run],
        "tools": tools,
        "metadata": {"context": context},
    }
    prompts = PromptsSettings(capabilities=asked.pop("capabilities", "full"))
    settings = Settings(budget=BudgetSettings(tools_share=share), prompts=prompts)
    async with open_builder(settings) as builder:
        registry = builder.sources.tools
        assert isinstance(registry, InMemoryToolRegistry)
        for subject in SUBJECTS:
            registry.register(tool(subject))
        request = BuildRequest.model_validate({"owner_key": "o", "content": content})
        response = await builder.build(request)
    assert response.content.status == "success", response.content
    return response.content


def names(content: BuildSuccess) -> list[str]:
    """Return the subjects of the tools that are offered."""
    return [each["function"]["name"].removeprefix("find_") for each in content.tools]


def left_out(content: BuildSuccess) -> str:
    """Return what the warning says of tools."""
    (warning,) = [each for each in content.warnings if each.code == "tools_left_out"]
    return warning.detail


def taken(content: BuildSuccess) -> int:
    """Return what array and block take."""
    return content.usage.tools + content.usage.blocks.get("CAPABILITIES", 0)


@pytest.mark.parametrize("limit", [0, 30, 100, 200, 300, 400, 500])
async def test_tools_stay_within_their_tokens(limit: int) -> None:
    """Array and block together; every tool is offered or named in the warning."""
    content = await built("Are there parcels for me?", tools_tokens=limit)

    assert taken(content) <= max(limit, 30)
    assert [*names(content)] == [subject for subject in SUBJECTS if subject in names(content)]
    for subject in SUBJECTS:
        assert (f"find_{subject}" in left_out(content)) != (subject in names(content))
    assert ("parcels" in names(content)) == (limit >= 200)


async def test_block_and_array_have_the_same_tools() -> None:
    """What is left out of one is left out of the other."""
    content = await built("Play some music", tools_tokens=250)
    block = content.messages[1]["content"]

    assert "music" in names(content)
    assert all((f"### find_{each}\n" in block) == (each in names(content)) for each in SUBJECTS)


async def test_more_tools_fit_with_less_text() -> None:
    """Without the block, the limit is the array's; what was chosen is as unstable as with it."""
    forms = ("full", "names", "none")
    several = [await built("parcels", tools_tokens=250, capabilities=form) for form in forms]
    counts = [len(names(content)) for content in several]

    assert counts[0] < counts[1] <= counts[2]
    assert all(taken(content) <= 250 for content in several)
    assert [content.usage.cacheable_prefix for content in several] == [0, 0, 0]


async def test_all_are_offered_where_they_fit() -> None:
    """And where nobody limits them, which is the default."""
    for content in (await built("Hi"), await built("Hi", tools_tokens=6000)):
        assert names(content) == list(SUBJECTS)
        assert not content.warnings


async def test_a_share_of_the_settings_holds_unless_the_request_says_otherwise() -> None:
    """A share of the tokens that are available."""
    few = await built("Are there parcels?", share=0.05)
    assert taken(few) <= 300
    assert len(names(few)) < len(SUBJECTS)
    assert len(names(await built("Hi", share=0.05, tools_tokens=None))) < len(SUBJECTS)
    assert len(names(await built("Hi", share=0.05, tools_tokens=6000))) == len(SUBJECTS)


async def test_tools_that_are_named_are_all_kept() -> None:
    """Definitions that a request brings along are chosen from."""
    named = await built("parcels", tools=["find_music", "find_hotels"], tools_tokens=0)
    assert names(named) == ["music", "hotels"]
    brought = await built("music", tools=[tool("recipes"), tool("music")], tools_tokens=100)
    assert names(brought) == ["music"]


async def test_a_called_tool_is_kept_under_the_name_of_its_calls() -> None:
    """Though it was called by one that is replaced."""
    call = {"id": "c1", "name": "find_air.ports", "arguments": {}}
    run = [{"role": "AI", "content": "", "metadata": {"tool_calls": [call]}}]
    tools = [tool("hotels"), tool("air.ports")]
    content = await built("Are there hotels?", run=run, tools=tools, tools_tokens=0)
    assert names(content) == ["air_ports_de13666e"]


async def test_no_call_of_the_run_is_without_its_definition() -> None:
    """Whatever the input is about, and however few tokens there are."""
    call = {"id": "c1", "name": "find_hotels", "arguments": {"q": "x"}}
    run = [
        {"role": "AI", "content": "", "metadata": {"tool_calls": [call]}},
        {"role": "TOOL", "content": "none", "metadata": {"tool_call_id": "c1"}},
    ]
    content = await built("Are there parcels?", run=run, tools_tokens=0)
    assert names(content) == ["hotels"]


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_calls_in_history_keep_their_tools(layout: str) -> None:
    """In the chat layout all that may be shown, else those of the newest rows."""
    call = {"id": "c1", "name": "find_recipes", "arguments": {"q": "x"}}
    past = [
        {"id": "h1", "run_id": "r0", "role": "HUMAN", "content": "Soup?"},
        {
            "id": "a1",
            "run_id": "r0",
            "role": "AI",
            "content": "",
            "metadata": {"tool_calls": [call]},
        },
        {
            "id": "t1",
            "run_id": "r0",
            "role": "TOOL",
            "content": "x",
            "metadata": {"tool_call_id": "c1"},
        },
        *({"id": f"x{n}", "run_id": f"x{n}", "role": "HUMAN", "content": "Hm"} for n in range(30)),
    ]
    near = await built("parcels", past=past[:10], tools_tokens=0, layout=layout)
    assert names(near) == ["recipes"]
    far = await built("parcels", past=past, tools_tokens=0, layout=layout, memory_limit=None)
    assert names(far) == (["recipes"] if layout == "chat" else [])


async def test_the_choice_is_the_same_each_time() -> None:
    """And reports that it may differ next time: tools precede all messages."""
    first, again = [await built("Any weather?", tools_tokens=250) for _ in range(2)]
    assert first.tools == again.tools
    assert first.messages[:2] == again.messages[:2]
    assert first.usage.cacheable_prefix == 0
    everything = await built("Any weather?")
    assert everything.usage.cacheable_prefix > first.usage.cacheable_prefix


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_no_mark_follows_tools_that_the_next_input_changes(layout: str) -> None:
    """The choice stays for a run, so marks are of use from its second build on."""
    options: dict[str, Any] = {"layout": layout, "format": "anthropic"}
    marks = []
    for tokens, run in ((None, []), (250, []), (250, IN_FLIGHT)):
        content = await built("Any weather?", run=run, tools_tokens=tokens, **options)
        assert content.provider_request is not None
        sent = {key: content.provider_request[key] for key in ("tools", "system", "messages")}
        marks.append([key for key, part in sent.items() if "cache_control" in json.dumps(part)])
        assert bool(content.usage.cacheable_prefix) == bool(marks[-1])
    all_three = ["tools", "system", "messages"]

    assert marks == [all_three, [], all_three]
