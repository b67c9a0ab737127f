"""Loads tool definitions from files and modules, and follows servers that list theirs."""

import asyncio
import importlib
import json
import pkgutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

import yaml

from formatters.model import Tool
from service.adapters.files import read_regular
from service.adapters.openers import mcp_servers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.config.content import ToolsSettings
from service.errors import ToolError
from service.observe.metrics import Metrics
from service.ports.services import ToolSource
from service.wire.tool_definitions import check_definition

_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})
#: The end of the names of definitions in a module, as in the source systems.
_MODULE_SUFFIX: Final = "_TOOL"


@asynccontextmanager
async def open_tools(
    settings: ToolsSettings, metrics: Metrics
) -> AsyncIterator[InMemoryToolRegistry]:
    """Load the configured tools, and follow the configured servers.

    Waits for each server up to its timeout; one that doesn't answer is tried again later.

    Raises:
        ConfigError: Servers are configured, but the extra that they need is not installed.
        ToolError: A tool file is invalid.
    """
    registry = load_registry(settings)
    if not settings.mcp:
        yield registry
        return
    servers = await asyncio.to_thread(mcp_servers)
    async with servers.follow(settings, registry, metrics):
        yield registry


def load_registry(settings: ToolsSettings) -> InMemoryToolRegistry:
    """Load the tools of files and modules; raises `ToolError` with the location of a problem."""
    registry = InMemoryToolRegistry()
    try:
        sources = find_sources(settings.paths, settings.modules)
    except ToolError as error:
        raise ToolError(f"tools.paths: {error.detail}") from error
    for source in sources:
        for definition in source.read():
            registry.register(definition)
    return registry


def find_sources(paths: Iterable[Path], modules: Iterable[str]) -> list[ToolSource]:
    """Return the files at the paths, then the modules, without reading them.

    Of a folder these are its .yml, .yaml and .json files, sorted by name. Raises `ToolError` if a
    path doesn't exist.
    """
    files = [
        (file, path if path.is_dir() else None) for path in paths for file in _tool_files(path)
    ]
    return [
        *(ToolSource(str(file), partial(read_file, file, folder)) for file, folder in files),
        *(ToolSource(module, partial(discover, module)) for module in modules),
    ]


def _tool_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not path.exists():
        raise ToolError(f"{path}: there is no such file or folder")
    if path.suffix not in _SUFFIXES:
        raise ToolError(f"{path}: the name of a tool file must end in .yml, .yaml or .json")
    return [path]


def discover(module_name: str) -> list[Tool]:
    """Import a module and return its ``*_TOOL`` dicts, in the order of their assignment.

    Those of the modules in a package follow its own, by the names of the modules. Names that begin
    with an underscore are private.

    Raises:
        ToolError: A module cannot be imported, or a dict is not a definition.
    """
    tools: dict[int, Tool] = {}  # by identity: packages import definitions of their modules
    for module in _import(module_name):
        for name, value in vars(module).items():
            private = name.startswith("_")
            if name.endswith(_MODULE_SUFFIX) and isinstance(value, dict) and not private:
                check_definition(value, f"{module.__name__}.{name}")
                tools.setdefault(id(value), value)
    return list(tools.values())


def _import(name: str) -> Iterator[ModuleType]:
    """Yield a module, and all modules in it if it is a package."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        raise ToolError(f"module {name!r}: cannot be imported: {detail}") from error
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not found.name.startswith("_"):
            yield from _import(f"{name}.{found.name}")


def read_file(path: Path, folder: Path | None = None) -> list[Tool]:
    """Read a list of OpenAI function definitions, or a mapping with such a list at ``tools``.

    Raises:
        ToolError: The file cannot be read, a link leads out of the folder, or it is invalid; has
            file, line and index.
    """
    try:
        text = read_regular(path, folder).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{path}: cannot be read: {error}") from error
    value, lines = _parse(path, text)
    tools = value.get("tools") if isinstance(value, Mapping) else value
    if not isinstance(tools, list):
        raise ToolError(f'{path}: must be a list of tools, or a mapping with one at "tools"')
    for index, tool in enumerate(tools):
        line = f":{lines[index]}" if lines else ""
        check_definition(tool, f"{path}{line}: tool {index}")
    return tools


def _parse(path: Path, text: str) -> tuple[object, list[int]]:
    """Return the content of a file, and for YAML the line of each tool."""
    try:
        if path.suffix == ".json":
            return json.loads(text), []
        return yaml.safe_load(text), _tool_lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except json.JSONDecodeError as error:
        raise ToolError(f"{path}:{error.lineno}: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ToolError(f"{path}{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ToolError(f"{path}: {error}") from error


def _tool_lines(node: yaml.Node | None) -> list[int]:
    if isinstance(node, yaml.MappingNode):
        # of duplicate keys the last one counts, as in the parsed value
        node = next((value for key, value in reversed(node.value) if key.value == "tools"), None)
    if not isinstance(node, yaml.SequenceNode):
        return []
    return [item.start_mark.line + 1 for item in node.value]
