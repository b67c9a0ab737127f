"""Tools are read from YAML and JSON; errors name file, line and place."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from formatters.model import Tool
from service.adapters.tools.loading import find_sources
from service.errors import ToolError

YAML = """\
- type: function
  function: {name: first}

- type: function
  function:
    name: second
    parameters:
      type: object
      properties:
        day: {type: string}
      required: [day]
"""


def tool(name: str) -> dict[str, object]:
    """Make a definition."""
    return {"type": "function", "function": {"name": name}}


def load_tools(paths: Iterable[Path | str]) -> list[Tool]:
    """Read the tools of files and folders."""
    return [read for source in find_sources(map(Path, paths), ()) for read in source.read()]


def names(tools: object) -> list[str]:
    """Return the names of tools."""
    assert isinstance(tools, list)
    return [definition["function"]["name"] for definition in tools]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a YAML file that is not there yet."""
    return tmp_path / "tools.yml"


@pytest.mark.parametrize("suffix", [".yml", ".yaml", ".json"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_lists_and_mappings_are_read(tmp_path: Path, suffix: str, wrapped: bool) -> None:
    """A file holds a list, or a mapping with one at ``tools``; JSON is JSON and YAML both."""
    tools = [tool("a"), tool("b")]
    path = tmp_path / f"tools{suffix}"
    path.write_text(json.dumps({"version": 1, "tools": tools} if wrapped else tools))

    assert load_tools([str(path)]) == tools


def test_yaml_is_read(file: Path) -> None:
    """Tools may be written as YAML has them."""
    file.write_text(YAML)
    assert names(load_tools([file])) == ["first", "second"]


def test_folders_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    """A folder's files come sorted, other files are left alone, and paths keep their order."""
    for name in ("b.json", "a.yml", "c.yaml", "notes.md"):
        (tmp_path / name).write_text(json.dumps([tool(name)]))
    (tmp_path / "empty").mkdir()

    found = load_tools([tmp_path / "c.yaml", tmp_path / "empty", tmp_path])
    assert names(found) == ["c.yaml", "a.yml", "b.json", "c.yaml"]


def test_no_paths_are_no_tools() -> None:
    """Nothing to read gives nothing."""
    assert load_tools([]) == []


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("t.yml", "- type: function\n- [", r"t\.yml:2: "),
        ("t.yml", "a: 1\nb: \t- 2", r"t\.yml:2: "),
        ("t.yml", "a: \x00", r"t\.yml: "),
        ("t.yml", "!!python/object/apply:os.getcwd []", r"t\.yml:1: could not determine"),
        ("t.json", '[\n{"type" "function"}]', r"t\.json:2: Expecting ':'"),
        ("t.json", "[" * 100_000, r"t\.json: "),
        ("t.yml", "", "must be a list of tools"),
        ("t.yml", "tools: {a: 1}", "must be a list of tools"),
        ("t.yml", "text", "must be a list of tools"),
        ("t.yml", YAML.replace("[day]", "[hour]"), r"t\.yml:4: tool 1: .*/required/0 'hour'"),
        ("t.yml", "tools: []\ntools:\n- 5\n", r"t\.yml:3: tool 0: must be an object"),
        ("t.yml", "- &a [*a]", r"t\.yml:1: tool 0: must be an object"),
        ("t.yml", "- {type: function, function: {name: a, since: 2024-01-01}}", "date"),
        ("t.json", "[{}]", r"t\.json: tool 0: /type must be"),
        ("t.txt", "[]", "must end in"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, name: str, text: str, cause: str) -> None:
    """What cannot be read is named by file, line where there is one, and place in the list."""
    (tmp_path / name).write_text(text)
    with pytest.raises(ToolError, match=cause) as caught:
        load_tools([tmp_path / name])
    assert str(caught.value).startswith(f"{tmp_path / name}")


@pytest.mark.parametrize("target", ["/proc/self/environ", "outside.json"])
def test_links_out_of_a_folder_are_refused(tmp_path: Path, target: str) -> None:
    """A link to the environment of the process would show its passwords; one within is fine."""
    (tmp_path / "outside.json").write_text(json.dumps([tool("a")]))
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "b.json").write_text(json.dumps([tool("b")]))
    (folder / "c.json").symlink_to("b.json")
    assert names(load_tools([folder])) == ["b", "b"]
    (folder / "d.json").symlink_to(tmp_path / target)

    with pytest.raises(ToolError, match=r"d\.json: cannot be read: a link leads out of"):
        load_tools([folder])


def test_special_files_are_refused(tmp_path: Path) -> None:
    """A pipe would be waited for, for ever."""
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path, tmp_path / "pipe.json"):
        with pytest.raises(ToolError, match=r"pipe\.json: cannot be read: not a regular file"):
            load_tools([path])


def test_files_that_cannot_be_read_are_named(file: Path, tmp_path: Path) -> None:
    """A missing file, a file that is no UTF-8 and a folder named like a file are errors."""
    with pytest.raises(ToolError, match="there is no such file or folder"):
        load_tools([file])
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ToolError, match="cannot be read"):
        load_tools([file])
    file.unlink()
    (tmp_path / "folder.yml").mkdir()
    with pytest.raises(ToolError, match="cannot be read"):
        load_tools([tmp_path])
