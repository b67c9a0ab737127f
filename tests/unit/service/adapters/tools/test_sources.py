"""Tools are found in modules by the names of their variables."""

import sys
from types import ModuleType

import pytest

from service.adapters.tools.sources import discover
from service.errors import ToolError


def tool(name: str) -> dict[str, object]:
    """Make a definition."""
    return {"type": "function", "function": {"name": name}}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module that can be imported as ``made_up_tools``."""
    made = ModuleType("made_up_tools")
    monkeypatch.setitem(sys.modules, "made_up_tools", made)
    return made


def test_dicts_named_as_tools_are_taken(module: ModuleType) -> None:
    """Every ``*_TOOL`` dict of a module is a tool, in the order of assignment."""
    names = {"SECOND_TOOL": tool("b"), "_FIRST_TOOL": tool("a"), "OTHER": tool("c")}
    vars(module).update(names, NAME_TOOL="text", MAKE_TOOL=tool, lower_tool=tool("d"))

    assert discover("made_up_tools") == [tool("b"), tool("a")]


def test_a_module_without_tools_has_none(module: ModuleType) -> None:
    """No tools are an empty list."""
    assert discover(module.__name__) == []


def test_a_bad_dict_is_named(module: ModuleType) -> None:
    """A ``*_TOOL`` dict that is no definition is refused by module and name."""
    vars(module)["BAD_TOOL"] = {"type": "function"}
    with pytest.raises(ToolError, match=r"made_up_tools\.BAD_TOOL: /function must be an object"):
        discover("made_up_tools")


@pytest.mark.parametrize("name", ["", ".relative", "made_up_tools_that_are_not_there"])
def test_a_module_that_cannot_be_imported_is_named(name: str) -> None:
    """A missing module is a tool error, with the cause."""
    with pytest.raises(ToolError, match=f"module '{name}': cannot be imported"):
        discover(name)
