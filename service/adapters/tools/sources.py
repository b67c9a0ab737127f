"""Read tool definitions from files and from modules."""

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from formatters.model import Tool
from service.errors import ToolError
from service.ports.services import ToolSource
from service.wire.tools import check_definition

_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})
#: Ends the name of a definition at the top level of a module, as in the source systems.
_MODULE_SUFFIX: Final = "_TOOL"


def load_tools(paths: Iterable[str | Path]) -> list[Tool]:
    """Read files, and the .yml, .yaml and .json files of folders in the order of their names.

    A file holds a list of OpenAI function definitions, or a mapping with one at ``tools``.

    Raises:
        ToolError: A file cannot be read or holds something else; names file, line and place.
    """
    return [tool for path in paths for file in tool_files(Path(path)) for tool in _file_tools(file)]


def find_sources(paths: Iterable[Path], modules: Iterable[str]) -> list[ToolSource]:
    """Return the files below the paths, then the modules; none is read yet."""
    files = [file for path in paths for file in tool_files(path)]
    return [
        *(ToolSource(str(file), partial(load_tools, [file])) for file in files),
        *(ToolSource(module, partial(discover, module)) for module in modules),
    ]


def discover(module_name: str) -> list[Tool]:
    """Import a module and return its ``*_TOOL`` dicts, in the order of their assignment.

    Raises:
        ToolError: There is no such module, it does not import, or a dict is no definition.
    """
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError, TypeError, ValueError) as error:
        raise ToolError(f"module {module_name!r}: cannot be imported: {error}") from error
    tools: list[Tool] = []
    for name, value in vars(module).items():
        if name.endswith(_MODULE_SUFFIX) and isinstance(value, dict):
            check_definition(value, f"{module_name}.{name}")
            tools.append(value)
    return tools


def tool_files(path: Path) -> list[Path]:
    """Return a file, or those of a folder that can hold tools, in the order of their names.

    Raises:
        ToolError: There is no such file, or it is of another kind.
    """
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not path.exists():
        raise ToolError(f"{path}: there is no such file or folder")
    if path.suffix not in _SUFFIXES:
        raise ToolError(f"{path}: a tool file ends in .yml, .yaml or .json")
    return [path]


def _file_tools(path: Path) -> Iterator[Tool]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{path}: cannot be read: {error}") from error
    value, lines = _parsed(path, text)
    tools = value.get("tools") if isinstance(value, Mapping) else value
    if not isinstance(tools, list):
        raise ToolError(f'{path}: a list of tools is needed, or a mapping with one at "tools"')
    for place, tool in enumerate(tools):
        line = f":{lines[place]}" if lines else ""
        check_definition(tool, f"{path}{line}: tool {place}")
        yield tool


def _parsed(path: Path, text: str) -> tuple[object, list[int]]:
    """Return what a file holds, and for YAML the line on which each tool begins."""
    try:
        if path.suffix == ".json":
            return json.loads(text), []
        return yaml.safe_load(text), _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except json.JSONDecodeError as error:
        raise ToolError(f"{path}:{error.lineno}: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ToolError(f"{path}{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ToolError(f"{path}: {error}") from error


def _lines(node: yaml.Node | None) -> list[int]:
    if isinstance(node, yaml.MappingNode):
        # Of equal keys the last one counts, as in the value.
        node = next((value for key, value in reversed(node.value) if key.value == "tools"), None)
    if not isinstance(node, yaml.SequenceNode):
        return []
    return [item.start_mark.line + 1 for item in node.value]
