"""The tools that a request offers the model: the registry's, some of them, or its own."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from formatters.model import Tool
from service.budget.toolset import Toolset, Toolsets
from service.errors import InvalidRequestError, Problem, ToolError, shown
from service.ports.services import ToolRegistry
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord
from service.wire.tools import check_definition


async def offered_tools(
    request: BuildRequest, registry: ToolRegistry, toolsets: Toolsets
) -> Toolset:
    """Return the tools that the request asks for; the registry is read once for each version.

    A registry may block; in a thread it delays nobody else, and the timeout holds.

    Raises:
        InvalidRequestError: The request names a tool that there isn't, or brings a bad one.
    """
    asked = request.run.tools
    if asked is None:
        return Toolset()
    if asked and not isinstance(asked[0], str):
        return Toolset(_brought(asked))
    # the version first: what changes while the tools are read belongs to the next one
    names, version = tuple(asked), registry.version
    known = toolsets.get(version, names)
    if known is None:
        known = await asyncio.to_thread(_offered, names, registry)
        toolsets.put(version, names, known)
    return known


def unlisted(request: BuildRequest, registry: ToolRegistry) -> Iterator[WarningRecord]:
    """Warn of sources that don't answer, where the request offers tools of the registry."""
    asked = request.run.tools
    brought = asked is None or (asked and not isinstance(asked[0], str))
    if registry.stale and not brought:
        names = ", ".join(registry.stale)
        detail = f"tools are those of the last listing, or missing, of: {names}"
        yield WarningRecord(code="tools_stale", detail=detail)


def _offered(names: Sequence[str], registry: ToolRegistry) -> Toolset:
    return Toolset(_chosen(names, registry) if names else registry.get_all_tool_definitions())


def _chosen(names: Sequence[str], registry: ToolRegistry) -> tuple[Tool, ...]:
    found = {name: registry.get_tool_definition(name) for name in names}
    problems = [
        Problem(f"/content/tools/{place}", f"the registry has no tool {shown(name)}")
        for place, name in enumerate(names)
        if found[name] is None
    ]
    if problems:
        raise InvalidRequestError(problems[0].detail, problems)
    return tuple(tool for tool in found.values() if tool)


def _brought(definitions: Sequence[Tool]) -> tuple[Tool, ...]:
    problems: list[Problem] = []
    names: set[object] = set()
    for place, definition in enumerate(definitions):
        pointer = f"/content/tools/{place}"
        try:
            check_definition(definition, pointer)
        except ToolError as error:
            problems += [Problem(pointer + p.pointer, p.detail) for p in error.problems]
            continue
        name = _name(definition)
        if name in names:
            problems.append(Problem(pointer, f"there is another tool {shown(name)}"))
        names.add(name)
    if problems:
        raise InvalidRequestError(f"{problems[0].pointer}: {problems[0].detail}", problems)
    return tuple(definitions)


def _name(definition: Tool) -> object:
    function = definition["function"]
    return function["name"] if isinstance(function, Mapping) else None
