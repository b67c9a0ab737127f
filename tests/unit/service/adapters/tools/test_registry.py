"""The registry keeps tools in order, and lets nobody change them from outside."""

from typing import cast

import pytest
from structlog.testing import capture_logs

from formatters.model import Tool
from service.adapters.tools.registry import InMemoryToolRegistry
from service.errors import ToolError


def tool(name: str, description: str = "") -> dict[str, object]:
    """Make a definition."""
    return {"type": "function", "function": {"name": name, "description": description}}


def registry(*names: str) -> InMemoryToolRegistry:
    """Return a registry with tools of these names."""
    made = InMemoryToolRegistry()
    for name in names:
        made.register(tool(name))
    return made


def function(definition: Tool | None) -> dict[str, object]:
    """Return a definition's function."""
    assert definition is not None
    return cast(dict[str, object], definition["function"])


def test_tools_are_listed_in_their_order() -> None:
    """Names and definitions come in the order of registration."""
    tools = registry("b", "a", "c")

    assert tools.list_tool_names() == ["b", "a", "c"]
    assert tools.get_all_tool_definitions() == [tool("b"), tool("a"), tool("c")]
    assert tools.get_tool_definition("a") == tool("a")
    assert tools.get_tool_definition("d") is None


def test_an_empty_registry_has_no_tools() -> None:
    """Nothing registered is nothing offered."""
    tools = registry()
    assert tools.list_tool_names() == []
    assert tools.get_all_tool_definitions() == []


def test_a_name_registered_again_is_replaced_in_place() -> None:
    """The new definition takes the old one's place, and a warning says so."""
    tools = registry("a", "b")
    with capture_logs() as logs:
        tools.register(tool("a", "new"))

    assert tools.get_all_tool_definitions() == [tool("a", "new"), tool("b")]
    assert logs == [{"event": "tool.replaced", "log_level": "warning", "tool": "a"}]


def test_unregister_reports_whether_there_was_one() -> None:
    """A tool that is removed is gone, and comes back last."""
    tools = registry("a", "b")

    assert tools.unregister("a") is True
    assert tools.unregister("a") is False
    tools.register(tool("a"))
    assert tools.list_tool_names() == ["b", "a"]


def test_definitions_are_copied_in_and_out() -> None:
    """What a caller does to a definition, before or after, does not change the registry."""
    given = tool("a")
    tools = InMemoryToolRegistry()
    tools.register(given)
    for definition in (given, tools.get_tool_definition("a"), tools.get_all_tool_definitions()[0]):
        function(definition)["name"] = "changed"

    assert tools.get_all_tool_definitions() == [tool("a")]


def test_what_is_no_definition_is_refused() -> None:
    """A refused definition leaves the registry as it was."""
    tools = registry("a")
    with pytest.raises(ToolError, match="/function/name"):
        tools.register(tool("no name"))
    assert tools.list_tool_names() == ["a"]


def test_the_version_changes_with_the_tools() -> None:
    """With what comes, is replaced or goes; not with what is refused or wasn't there."""
    tools = registry()
    versions = [tools.version]
    for change in (
        lambda: tools.register(tool("a")),
        lambda: tools.register(tool("a", "new")),
        lambda: tools.unregister("a"),
    ):
        change()
        versions.append(tools.version)
    with pytest.raises(ToolError):
        tools.register(tool("no name"))
    tools.unregister("a")

    assert len(set(versions)) == 4
    assert tools.version == versions[-1]


def test_what_sources_list_follows_what_is_registered() -> None:
    """In the order of the sources; of tools with one name the first stays, and a log says so."""
    tools = registry("a")
    tools.replace("first", ())
    tools.replace("second", [tool("c"), tool("b")])
    with capture_logs() as logs:
        tools.replace("first", [tool("a", "hidden"), tool("d")])

    assert tools.list_tool_names() == ["a", "d", "c", "b"]
    assert tools.get_tool_definition("a") == tool("a")
    assert [(each["event"], each["tool"], each["source"]) for each in logs] == [
        ("tool.hidden", "a", "first")
    ]


def test_a_listing_that_is_the_same_is_no_new_version() -> None:
    """Nothing that was made of the tools has to be made again."""
    tools = registry()
    assert tools.replace("s", [tool("a"), tool("b")])
    version = tools.version

    assert not tools.replace("s", [tool("a"), tool("b")])
    assert tools.version == version
    assert tools.replace("s", [tool("b")])
    assert tools.version > version
    assert tools.list_tool_names() == ["b"]


def test_stale_sources_are_named_in_their_order() -> None:
    """Their tools stay."""
    tools = registry()
    for source in ("x", "y"):
        tools.replace(source, [tool(source)])
        tools.mark(source, stale=True)
    assert tools.stale == ["x", "y"]
    tools.mark("x", stale=False)
    assert tools.stale == ["y"]
    assert tools.list_tool_names() == ["x", "y"]
