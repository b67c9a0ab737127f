"""The tools of a request: read them, cache their costs, and select those that fit their share."""

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import add
from types import MappingProxyType
from typing import Any, Final, TypeVar

from cachetools import FIFOCache

from formatters.deferred import STAND_INS
from formatters.guard import Guard
from formatters.model import Block, Facts, Role, Tool
from formatters.names import clean_name
from formatters.rows import as_mapping
from prompts.capabilities import capabilities
from prompts.recall_tool import NAME as RECALL_NAME
from prompts.recall_tool import RECALL_TOOL
from service.budget.counting import block_tokens, count_function, entry_tokens
from service.errors import InvalidRequestError, Problem, ToolError, shown
from service.ports.services import TokenCounter, ToolRegistry
from service.recall.tool_ranking import ToolIndex
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord
from service.wire.tool_definitions import check_definition, tool_name

T = TypeVar("T")

#: Limit of the cached sets; requests can name any number of them.
MAX_SETS: Final = 32
#: Limit of the cached values of a set, some of which depend on what requests choose.
MAX_VALUES: Final = 32
#: Limit of the names that a warning lists.
MAX_LISTED: Final = 5


def tools_json(tools: Sequence[Tool]) -> str:
    """Return the ``tools`` array as it is counted: without spaces, keys in their order."""
    return json.dumps(tools, ensure_ascii=False, separators=(",", ":"))


class Toolset:
    """An ordered set of tool definitions, which must not be modified."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        chosen: bool = False,
        deferred: Sequence[Tool] = (),
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.tools = tuple(tools)
        #: The tools that a search finds; those above are offered in their place.
        self.deferred = tuple(deferred)
        #: Whether the tools were chosen for the input, so that another input may get others.
        self.chosen = chosen
        #: The names under which tools are offered whose own names APIs refuse.
        self.renamed = renamed
        #: The ``tools`` array.
        self.json = tools_json(self.tools)
        #: How much work it is to count or search the tools, in characters.
        self.size = len(self.json) + len(tools_json(self.deferred))
        #: Values by the name of their kind and what they depend on.
        self._cache: dict[tuple[object, ...], Any] = {}

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens of the array, 0 if it is empty."""
        if not self.tools:
            return 0
        return self.cached(("tokens", counter.name), lambda: counter.count(self.json))

    def block(self, facts: Facts) -> Block:
        """Return the block that shows the tools, in the form and under the guard of the facts."""

        def show() -> Block:
            shown = replace(facts, tools=self.tools, deferred=self.deferred, tools_block=None)
            block = capabilities(shown)
            return replace(block, volatile=self.chosen)

        return self.cached(("block", facts.guard, facts.capabilities), show)

    def costs(self, counter: TokenCounter, facts: Facts) -> Sequence[int]:
        """Return the tokens of each tool, in the array and in the block of the facts."""

        def compute() -> Sequence[int]:
            count, entries = count_function(counter), self.block(facts).entries
            shown = [entry_tokens(entry, count) for entry in entries] or [0] * len(self.tools)
            array = (count(tools_json([tool])) for tool in self.tools)
            return tuple(map(add, array, shown))

        return self.cached(("costs", counter.name, facts.guard, facts.capabilities), compute)

    def with_recall(self) -> "Toolset":
        """Return the set with the tool `recall` at its end."""

        def add() -> Toolset:
            tools = (*self.tools, RECALL_TOOL)
            return Toolset(tools, chosen=self.chosen, deferred=self.deferred)

        return self.cached(("recall",), add)

    def rank(self, question: str, previous: Sequence[str] = ()) -> list[float]:
        """Return a score for each tool, or for each deferred one if there are any."""
        tools = self.deferred or self.tools
        return self.cached(("index",), lambda: ToolIndex(tools)).rank(question, previous)

    def subset(self, indices: Iterable[int]) -> "Toolset":
        """Return the set of some of the tools, in their order, as chosen for an input."""
        chosen = sorted(indices)
        tools = [self.tools[index] for index in chosen]
        return self.cached(("subset", *chosen), lambda: Toolset(tools, chosen=True))

    def cached(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the cached value of a key, computed on first use; a full cache is cleared."""
        value: T | None = self._cache.get(key)
        if value is None:
            value = make()
            if len(self._cache) >= MAX_VALUES:
                self._cache.clear()
            self._cache[key] = value
        return value


#: The sets of a registry, by its version, the requested names (none: all tools), and the guard.
Toolsets = FIFOCache[tuple[int, tuple[str, ...], Guard], Toolset]


async def read_tools(
    request: BuildRequest,
    registry: ToolRegistry,
    toolsets: Toolsets,
    guard: Guard,
    *,
    defer: bool = False,
) -> Toolset:
    """Return the tools of the request; each version of the registry is read once.

    A registry may block, so it is read in a thread. Special tokens in definitions are broken. If
    tools are to be deferred, those of the whole registry are, but not those that a request chooses.

    Raises:
        InvalidRequestError: A tool is unknown, or its definition is invalid.
    """
    tools = request.run.tools
    if tools is None:
        return Toolset()
    if not _from_registry(request):
        return _offer(_check_definitions(tools), guard)
    # read the version first: a change during the read belongs to the next version
    names, version = tuple(tools), registry.version
    toolset = toolsets.get((version, names, guard))
    if toolset is None:
        read = _read_deferred if defer and not names else partial(_read, names)
        toolset = await asyncio.to_thread(read, registry, guard)
        toolsets[version, names, guard] = toolset
    return toolset


def stale_tools(request: BuildRequest, registry: ToolRegistry) -> Iterator[WarningRecord]:
    """Warn of sources that don't answer, if the request uses the registry."""
    if registry.stale and _from_registry(request):
        names = ", ".join(registry.stale)
        detail = f"the tools of these sources are from their last listing, or missing: {names}"
        yield WarningRecord(code="tools_stale", detail=detail)


def renamed_tools(toolset: Toolset) -> Iterator[WarningRecord]:
    """Warn of tools that the model calls by another name than their own."""
    if toolset.renamed:
        names = [f"{shown(own)} is {name}" for own, name in toolset.renamed.items()]
        listed = ", ".join((*names[:MAX_LISTED], *(["…"] if len(names) > MAX_LISTED else [])))
        detail = f"APIs refuse names of tools, which have others in tools and calls: {listed}"
        yield WarningRecord(code="tools_renamed", detail=detail)


def _from_registry(request: BuildRequest) -> bool:
    tools = request.run.tools
    return tools is not None and (not tools or isinstance(tools[0], str))


def _read(names: Sequence[str], registry: ToolRegistry, guard: Guard) -> Toolset:
    if not names:
        return _offer(registry.get_all_tool_definitions(), guard)
    tools = {name: registry.get_tool_definition(name) for name in names}
    problems = [
        Problem(f"/content/tools/{index}", f"the registry has no tool {shown(name)}")
        for index, name in enumerate(names)
        if tools[name] is None
    ]
    if problems:
        raise InvalidRequestError(problems[0].detail, problems)
    return _offer([tool for tool in tools.values() if tool], guard)


def _read_deferred(registry: ToolRegistry, guard: Guard) -> Toolset:
    """Return what is offered in place of all tools of the registry, if it has any."""
    own = set(map(tool_name, STAND_INS))
    tools = _guard(registry.get_all_tool_definitions(), guard)
    deferred = [tool for tool in tools if tool_name(tool) not in own]
    return Toolset(STAND_INS if deferred else (), deferred=deferred)


def _offer(definitions: Sequence[Tool], guard: Guard) -> Toolset:
    """Return tools as they are offered, under the names of their calls.

    Of tools that would have the same name the first one counts.
    """
    offered: dict[str, Tool] = {}
    renamed: dict[str, str] = {}
    for tool in _guard(definitions, guard):
        own, name = tool_name(tool), clean_name(tool_name(tool))
        function = {**as_mapping(tool["function"]), "name": name}
        offered.setdefault(name, {**tool, "function": function})
        if name != own:
            renamed[own] = name
    return Toolset([*offered.values()], renamed=renamed)


def _guard(definitions: Sequence[Tool], guard: Guard) -> Sequence[Tool]:
    """Return definitions with the special tokens in them broken."""
    written = tools_json(definitions)
    broken = guard.shatter_json(written)
    return definitions if broken == written else json.loads(broken)


def _check_definitions(definitions: Sequence[Tool]) -> tuple[Tool, ...]:
    problems: list[Problem] = []
    names: set[str] = set()
    for index, definition in enumerate(definitions):
        pointer = f"/content/tools/{index}"
        try:
            check_definition(definition, pointer)
        except ToolError as error:
            problems += [Problem(pointer + p.pointer, p.detail) for p in error.problems]
            continue
        name = clean_name(tool_name(definition))
        if name in names:
            problems.append(Problem(pointer, f"another tool is called {shown(name)}"))
        names.add(name)
    if problems:
        raise InvalidRequestError(f"{problems[0].pointer}: {problems[0].detail}", problems)
    return tuple(definitions)


#: Tokens that joining the tool `recall` to others may add, besides its own.
JOINING: Final = 2


def offer_tools(
    toolset: Toolset, facts: Facts, limit: int | None, counter: TokenCounter
) -> tuple[Toolset, WarningRecord | None]:
    """Return the tools to offer: those that fit into ``limit`` tokens, and `recall` if wanted."""
    warning = None
    if limit is not None:
        if facts.recall_tool:
            limit -= Toolset().with_recall().costs(counter, facts)[0] + JOINING
        toolset, warning = limit_tools(toolset, facts, max(limit, 0), counter)
    return (toolset.with_recall() if facts.recall_tool else toolset), warning


def find_recall_conflict(request: BuildRequest, toolset: Toolset) -> str | None:
    """Return why the tool `recall` can't be offered; None if it can."""
    if request.options.past is not None:
        return "the history of the request isn't stored, so that nothing of it can be recalled"
    if any(tool_name(tool) == RECALL_NAME for tool in (*toolset.tools, *toolset.deferred)):
        return f"another tool is called {RECALL_NAME}"
    return None


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
    best score for their tokens are kept. The warning names the tools that were dropped. Deferred
    tools take hardly any tokens, and are left alone.
    """
    selection = _Selection(toolset, facts, counter)
    if not toolset.tools or toolset.deferred or selection.tokens(toolset) <= limit:
        return toolset, None
    selected = selection.select(limit)
    kept = {tool_name(tool) for tool in selected.tools}
    dropped = [name for name in map(tool_name, toolset.tools) if name not in kept]
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
        costs = self.toolset.costs(self.counter, self.facts)
        called = set(_called(self.facts))
        kept = [i for i, tool in enumerate(self.toolset.tools) if tool_name(tool) in called]
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
        block, count = toolset.block(self.facts), count_function(self.counter)
        return toolset.tokens(self.counter) + (block_tokens(block, count) if block.has_text else 0)

    def _rank(self, costs: Sequence[int], kept: Sequence[int]) -> list[int]:
        """Return the indices of the other tools, the best score for its tokens first.

        Scores are divided by the root of the tokens: divided by the tokens, the smallest tools
        would precede the right one.
        """
        scores = self.toolset.rank(self.facts.current_input, self._context())
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


def _called(facts: Facts) -> Iterator[str]:
    """Yield the names of the tools whose calls the model sees or has just made."""
    shown = facts.history if facts.layout == "chat" else facts.history[-RECENT_ROWS:]
    for message in (*facts.run, *shown):
        yield from (clean_name(call.name) for call in message.tool_calls)
        if message.role is Role.TOOL and message.name:
            yield clean_name(message.name)
