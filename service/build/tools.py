"""The tools that a request offers the model: all of the registry, a selection, or its own."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from formatters.model import Tool
from service.budget.toolset import Toolset, Toolsets
from service.errors import InvalidRequestError, Problem, ToolError, shown
from service.ports.services import ToolRegistry
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord
from service.wire.tools import check_definition


async def read_tools(request: BuildRequest, registry: ToolRegistry, toolsets: Toolsets) -> Toolset:
    """Return the tools of the request; each version of the registry is read once.

    A registry may block, so it is read in a thread.

    Raises:
        InvalidRequestError: A tool is unknown, or its definition is invalid.
    """
    tools = request.run.tools
    if tools is None:
        return Toolset()
    if not _from_registry(request):
        return Toolset(_check_definitions(tools))
    # read the version first: a change during the read belongs to the next version
    names, version = tuple(tools), registry.version
    toolset = toolsets.get(version, names)
    if toolset is None:
        toolset = await asyncio.to_thread(_read_registry, names, registry)
        toolsets.put(version, names, toolset)
    return toolset


def stale_tools(request: BuildRequest, registry: ToolRegistry) -> Iterator[WarningRecord]:
    """Warn of sources that don't answer, if the request uses the registry."""
    if registry.stale and _from_registry(request):
        names = ", ".join(registry.stale)
        detail = f"the tools of these sources are from their last listing, or missing: {names}"
        yield WarningRecord(code="tools_stale", detail=detail)


def _from_registry(request: BuildRequest) -> bool:
    tools = request.run.tools
    return tools is not None and (not tools or isinstance(tools[0], str))


def _read_registry(names: Sequence[str], registry: ToolRegistry) -> Toolset:
    return Toolset(_select(names, registry) if names else registry.get_all_tool_definitions())


def _select(names: Sequence[str], registry: ToolRegistry) -> tuple[Tool, ...]:
    tools = {name: registry.get_tool_definition(name) for name in names}
    problems = [
        Problem(f"/content/tools/{index}", f"the registry has no tool {shown(name)}")
        for index, name in enumerate(names)
        if tools[name] is None
    ]
    if problems:
        raise InvalidRequestError(problems[0].detail, problems)
    return tuple(tool for tool in tools.values() if tool)


def _check_definitions(definitions: Sequence[Tool]) -> tuple[Tool, ...]:
    problems: list[Problem] = []
    names: set[object] = set()
    for index, definition in enumerate(definitions):
        pointer = f"/content/tools/{index}"
        try:
            check_definition(definition, pointer)
        except ToolError as error:
            problems += [Problem(pointer + p.pointer, p.detail) for p in error.problems]
            continue
        name = _name(definition)
        if name in names:
            problems.append(Problem(pointer, f"another tool is called {shown(name)}"))
        names.add(name)
    if problems:
        raise InvalidRequestError(f"{problems[0].pointer}: {problems[0].detail}", problems)
    return tuple(definitions)


def _name(definition: Tool) -> object:
    function = definition["function"]
    return function["name"] if isinstance(function, Mapping) else None
