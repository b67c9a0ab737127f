"""The tools of a request: read them, and select those that fit into their share of the tokens."""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from formatters.model import Block, Facts, Message, Role, Tool
from prompts.capabilities import capabilities
from service.budget.counting import block_tokens, count_function, entry_tokens
from service.budget.toolset import Toolset, Toolsets, tools_json
from service.errors import InvalidRequestError, Problem, ToolError, shown
from service.ports.services import TokenCounter, ToolRegistry
from service.recall.tool_ranking import rank_tools
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
        name = _name_tools(definition)
        if name in names:
            problems.append(Problem(pointer, f"another tool is called {shown(name)}"))
        names.add(name)
    if problems:
        raise InvalidRequestError(f"{problems[0].pointer}: {problems[0].detail}", problems)
    return tuple(definitions)


def _name_tools(definition: Tool) -> object:
    function = definition["function"]
    return function["name"] if isinstance(function, Mapping) else None


#: Messages before the input that are searched for its subject too.
CONTEXT_MESSAGES: Final = 4
#: Newest rows of history whose calls keep their tools, in the layout that shows calls as text.
RECENT_ROWS: Final = 20
#: The score of a tool that doesn't match the input; the best match has 1 more.
BASE_SCORE: Final = 0.3


def limit_tools(
    toolset: Toolset, facts: Facts, limit: int, counter: TokenCounter
) -> tuple[Toolset, WarningRecord | None]:
    """Drop tools until array and block together have at most ``limit`` tokens.

    Tools called in the run or in recent history are always kept. Of the others, those with the
    best score for their tokens are kept. The warning names the tools that were dropped.
    """
    selection = _Selection(toolset, facts, counter)
    if not toolset.tools or selection.tokens(toolset) <= limit:
        return toolset, None
    selected = selection.select(limit)
    kept = {_name(tool) for tool in selected.tools}
    dropped = [name for name in map(_name, toolset.tools) if name not in kept]
    if not dropped:
        return toolset, None
    detail = f"tools are limited to {limit} tokens; left out: {', '.join(dropped)}"
    return selected, WarningRecord(code="tools_left_out", detail=detail)


@dataclass(frozen=True, slots=True)
class _Selection:
    """The tools to select from, with what scores and counts them."""

    toolset: Toolset
    facts: Facts
    counter: TokenCounter

    def select(self, limit: int) -> Toolset:
        """Return the tools to keep, in their order."""
        costs = self.toolset.costs(self.counter, self.facts.tags, self._costs)
        called = set(_called(self.facts))
        kept = [i for i, tool in enumerate(self.toolset.tools) if _name(tool) in called]
        required = len(kept)
        remaining = limit - self.tokens(Toolset()) - sum(costs[index] for index in kept)
        for index in self._rank(costs, kept):
            if costs[index] <= remaining:
                kept.append(index)
                remaining -= costs[index]
        # an array may have a token more than the sum of its parts
        while self.tokens(self.toolset.subset(kept)) > limit and len(kept) > required:
            kept.pop()
        return self.toolset.subset(kept)

    def tokens(self, toolset: Toolset) -> int:
        """Return the tokens of tools: of the array and of the full block."""
        block = self._block(toolset)
        return toolset.tokens(self.counter) + block_tokens(block, count_function(self.counter))

    def _rank(self, costs: Sequence[int], kept: Sequence[int]) -> list[int]:
        """Return the indices of the other tools, the best score for its tokens first.

        Scores are divided by the root of the tokens: divided by the tokens, the smallest tools
        would precede the right one.
        """
        scores = rank_tools(self.facts.current_input, self._context(), self.toolset.tools)
        best = max(scores) or 1.0
        value = [
            (score / best + BASE_SCORE) / math.sqrt(max(cost, 1))
            for score, cost in zip(scores, costs, strict=True)
        ]
        others = set(range(len(costs))) - set(kept)
        return sorted(others, key=lambda index: (-value[index], index))

    def _context(self) -> list[str]:
        """Return the texts before the input, newest first."""
        texts = (
            message.content
            for message in reversed(self.facts.history)
            if message.role in {Role.HUMAN, Role.AI} and message.content
        )
        return list(islice(texts, CONTEXT_MESSAGES))

    def _costs(self) -> tuple[int, ...]:
        count = count_function(self.counter)
        entries = self._block(self.toolset).entries
        return tuple(
            count(tools_json([tool])) + entry_tokens(entry, count)
            for tool, entry in zip(self.toolset.tools, entries, strict=True)
        )

    def _block(self, toolset: Toolset) -> Block:
        facts = replace(self.facts, tools=toolset.tools)
        return toolset.block(facts.tags, lambda: capabilities(facts))


def _called(facts: Facts) -> Iterator[str]:
    """Yield the names of the tools whose calls the model sees or has just made."""
    shown = facts.history if facts.layout == "chat" else facts.history[-RECENT_ROWS:]
    for message in (*facts.run, *shown):
        yield from _calls(message)


def _calls(message: Message) -> Iterator[str]:
    yield from (call.name for call in message.tool_calls)
    if message.role is Role.TOOL and message.name:
        yield message.name


def _name(tool: Tool) -> str:
    function = tool.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""
