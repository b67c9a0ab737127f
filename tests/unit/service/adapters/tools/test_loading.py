"""Tools are found in modules by the names of their variables."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from service.adapters.tools.loading import discover
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
    names = {"SECOND_TOOL": tool("b"), "FIRST_TOOL": tool("a"), "OTHER": tool("c")}
    names["_PRIVATE_TOOL"] = tool("e")
    vars(module).update(names, NAME_TOOL="text", MAKE_TOOL=tool, lower_tool=tool("d"))

    assert discover("made_up_tools") == [tool("b"), tool("a")]


def test_a_package_has_the_tools_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any depth, each once, after its own; those of private modules stay private."""
    package = tmp_path / "packed_tools"
    files = {
        "__init__": "from packed_tools.web import SEARCH_TOOL\nOWN_TOOL = {0}",
        "web": "SEARCH_TOOL = {0}",
        "files/__init__": "",
        "files/read": "READ_TOOL = {0}\n_HELPER_TOOL = {0}",
        "_private": "HIDDEN_TOOL = {0}",
        "__main__": "raise SystemExit",
    }
    for name, text in files.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(tool(path.stem)))
    monkeypatch.syspath_prepend(tmp_path)

    assert discover("packed_tools") == [tool("web"), tool("__init__"), tool("read")]
    (package / "bad.py").write_text("import nothing_of_that_name")
    importlib.invalidate_caches()
    with pytest.raises(ToolError, match=r"module 'packed_tools\.bad': cannot be imported"):
        discover("packed_tools")


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
