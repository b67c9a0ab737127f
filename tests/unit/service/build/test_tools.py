"""The tools that a request offers: the registry's, some of them, its own, or none."""

import json
import re
from copy import deepcopy
from typing import Any

import pytest

from formatters.guard import GUARD
from formatters.model import Tool
from formatters.providers.formats import FORMATS
from service.adapters.tools.registry import InMemoryToolRegistry
from service.build.tools import MAX_SETS, Toolset, Toolsets, read_tools, stale_tools
from service.errors import InvalidRequestError
from service.wire.request import BuildRequest
from tests.support import SEARCH, MakeBuilder
from tests.validity.canonical import canonical
from tests.validity.forms import VALIDATORS


def named(name: str, **parameters: Any) -> dict[str, Any]:
    """Return a definition of another name, and with other parameters."""
    definition: dict[str, Any] = deepcopy(dict(SEARCH))
    definition["function"]["name"] = name
    definition["function"]["parameters"] |= parameters
    return definition


class Registry(InMemoryToolRegistry):
    """A registry that notes how often all of its tools are read."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.reads = 0
        for name in names:
            self.register(named(name))

    def get_all_tool_definitions(self) -> list[Tool]:
        """Return them."""
        self.reads += 1
        return super().get_all_tool_definitions()


@pytest.fixture
def registry() -> Registry:
    """Give a registry of three tools."""
    return Registry("a", "b", "c")


async def offered(
    registry: Registry, asked: Any = (), toolsets: Toolsets | None = None
) -> list[str]:
    """Return the names of the tools that are offered."""
    content = {"current_input": "Hi", "tools": None if asked is None else list(asked)}
    request = BuildRequest.model_validate({"owner_key": "o", "content": content})
    found: Toolset = await read_tools(
        request, registry, Toolsets(MAX_SETS) if toolsets is None else toolsets, GUARD
    )
    return [tool["function"]["name"] for tool in json.loads(found.json)]


async def test_all_or_none(registry: Registry) -> None:
    """An empty list is every tool there is, null is no tool."""
    assert await offered(registry) == ["a", "b", "c"]
    assert await offered(registry, None) == []


async def test_names_choose_in_their_order(registry: Registry) -> None:
    """A name given twice is one tool."""
    assert await offered(registry, ["c", "a", "c"]) == ["c", "a"]


async def test_every_unknown_name_is_reported(registry: Registry) -> None:
    """With its place among the names."""
    with pytest.raises(InvalidRequestError, match="no tool 'x'") as caught:
        await offered(registry, ["a", "x", "y"])

    places = [problem.pointer for problem in caught.value.problems]
    assert places == ["/content/tools/1", "/content/tools/2"]


async def test_definitions_replace_the_registry(registry: Registry) -> None:
    """The registry is not even read."""
    assert await offered(registry, [named("own"), named("other")]) == ["own", "other"]
    assert registry.reads == 0


NAMES = ("db.drop", "db_drop", "9lives", "9.lives", "-dash", "x" * 64)


def find_names(value: object) -> list[str]:
    """Return the names of functions in a part of a request, each once."""
    return [*dict.fromkeys(re.findall(r'"name": "([^"]*)"', json.dumps(value)))]


@pytest.mark.parametrize("form", FORMATS)
async def test_a_tool_and_its_calls_have_one_name_in_a_form(
    form: str, make_builder: MakeBuilder
) -> None:
    """The API accepts it, and it stays as it is when a caller stores the calls that were made."""
    builder = make_builder()
    called, offered = [*NAMES], list[str]()
    for _ in range(2):
        calls = [{"id": f"c{n}", "name": name, "arguments": {}} for n, name in enumerate(called)]
        content = {
            "history": [
                {"content": "Hi"},
                {"role": "AI", "content": "", "metadata": {"tool_calls": calls}},
            ],
            "tools": [*map(named, NAMES)],
            "metadata": {"context": {"format": form}},
        }
        request = BuildRequest.model_validate({"owner_key": "o", "content": content})
        built: Any = (await builder.build(request)).content
        body = built.provider_request or {"messages": built.messages, "tools": built.tools}

        (warning,) = [each for each in built.warnings if each.code == "tools_renamed"]
        assert "'db.drop' is db_drop_d45a7b16" in warning.detail
        assert canonical(built.messages, built.tools) == []
        assert form == "openai" or VALIDATORS[form](body, ()) == []
        before, offered = offered, find_names(body.pop("tools"))
        assert before in ([], offered)
        called = find_names(body)
        assert called == offered
        assert len(offered) == len(NAMES)


async def test_tools_of_one_name_are_offered_once() -> None:
    """A tool may be called as another is offered: of the registry's, the first one counts."""
    same = ("db.drop", "db_drop_d45a7b16")

    assert await offered(Registry(*same)) == ["db_drop_d45a7b16"]
    with pytest.raises(InvalidRequestError, match="another tool is called 'db_drop_d45a7b16'"):
        await offered(Registry(), [*map(named, same)])


async def test_every_bad_definition_is_reported(registry: Registry) -> None:
    """One that is none, and one whose name is taken, each by a pointer into the request."""
    bad = named("b", required=["unknown"])
    with pytest.raises(InvalidRequestError) as caught:
        await offered(registry, [named("a"), bad, named("a")])

    places = [problem.pointer for problem in caught.value.problems]
    assert places == ["/content/tools/1/function/parameters/required/0", "/content/tools/2"]
    assert caught.value.detail.startswith("/content/tools/1/function/parameters/required/0: ")


async def test_the_registry_is_read_once_for_each_version(registry: Registry) -> None:
    """A tool that is added is offered by the next build."""
    toolsets = Toolsets(MAX_SETS)
    for _ in range(2):
        assert await offered(registry, toolsets=toolsets) == ["a", "b", "c"]
    assert registry.reads == 1

    registry.register(named("d"))

    assert await offered(registry, toolsets=toolsets) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("tools", "reported"), [([], True), (["a"], True), (None, False)])
def test_sources_that_do_not_answer_are_reported(
    registry: Registry, tools: list[str] | None, reported: bool
) -> None:
    """Where the request offers tools of the registry."""
    registry.replace("git", ())
    registry.mark("git", stale=True)
    content = {"current_input": "Hi", "tools": tools}
    request = BuildRequest.model_validate({"owner_key": "o", "content": content})

    warnings = list(stale_tools(request, registry))
    assert [warning.code for warning in warnings] == ["tools_stale"] * reported
    assert all("git" in warning.detail for warning in warnings)


async def test_special_tokens_in_definitions_are_broken(registry: Registry) -> None:
    """In descriptions and in the names of parameters."""
    tool = named("own")
    tool["function"] |= {
        "description": "x</s>",
        "parameters": {"type": "object", "properties": {"<|im_start|>": {"type": "string"}}},
    }
    content = {"current_input": "Hi", "tools": [tool]}
    request = BuildRequest.model_validate({"owner_key": "o", "content": content})

    shown: Any = (await read_tools(request, registry, Toolsets(MAX_SETS), GUARD)).tools[0]

    assert shown["function"]["description"] == "x<\\/s>"
    assert [*shown["function"]["parameters"]["properties"]] == ["<\\|im_start|>"]
