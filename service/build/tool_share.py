"""The tools that fit their share of the tokens: those that the input is about, and those in use."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from formatters.model import Block, Facts, Message, Role, Tool
from prompts.capabilities import capabilities
from service.budget.counting import block_tokens, count_function, entry_tokens
from service.budget.toolset import Toolset, tools_json
from service.build.gather import Gathered
from service.ports.services import TokenCounter
from service.recall.tool_ranking import rank_tools
from service.wire.response import WarningRecord

#: Messages before the input in which its subject is looked for too.
SAID: Final = 4
#: Newest rows of history whose calls keep their tools, where history is shown as text.
RECENT: Final = 20
#: What a tool is worth of which nothing was asked, beside 1 for the one that is asked most of.
WORTH: Final = 0.3


def with_tools_that_fit(
    gathered: Gathered, facts: Facts, limit: int | None, counter: TokenCounter
) -> tuple[Gathered, Facts]:
    """Leave tools out until array and block together take no more than so many tokens.

    Kept whatever they take are tools that were called in the run, or in history that is shown as
    calls, or shortly before. Of the others, those with the most of what is asked for their tokens;
    what is left out is named in a warning. None keeps all.
    """
    if limit is None or not gathered.toolset.tools:
        return gathered, facts
    choice = _Choice(gathered.toolset, facts, counter)
    if choice.tokens(gathered.toolset) <= limit:
        return gathered, facts
    toolset = choice.made(limit)
    kept = {_name(tool) for tool in toolset.tools}
    out = [name for name in map(_name, gathered.toolset.tools) if name not in kept]
    if not out:
        return gathered, facts
    detail = f"tools have {limit} tokens; left out: {', '.join(out)}"
    warning = WarningRecord(code="tools_left_out", detail=detail)
    return (
        replace(gathered, toolset=toolset, warnings=(*gathered.warnings, warning)),
        replace(facts, tools=toolset.tools),
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """Tools to choose from, and what the choice is made by."""

    toolset: Toolset
    facts: Facts
    counter: TokenCounter

    def made(self, limit: int) -> Toolset:
        """Return the tools that are kept, in their order."""
        costs = self.toolset.costs(self.counter, self.facts.tags, self._costs)
        called = set(_called(self.facts))
        kept = [i for i, tool in enumerate(self.toolset.tools) if _name(tool) in called]
        needed = len(kept)
        room = limit - self.tokens(Toolset()) - sum(costs[place] for place in kept)
        for place in self._ranked(costs, kept):
            if costs[place] <= room:
                kept.append(place)
                room -= costs[place]
        # an array may take a token more than its parts
        while self.tokens(self.toolset.part(kept)) > limit and len(kept) > needed:
            kept.pop()
        return self.toolset.part(kept)

    def tokens(self, toolset: Toolset) -> int:
        """Return what tools take: the array, and the block in full."""
        block = self._block(toolset)
        return toolset.tokens(self.counter) + block_tokens(block, count_function(self.counter))

    def _ranked(self, costs: Sequence[int], kept: Sequence[int]) -> list[int]:
        """Return the places of the others, those with the most of what is asked for a token first.

        By the root of the tokens: by all of them, the smallest tools would go before the right one.
        """
        scores = rank_tools(self.facts.current_input, self._said(), self.toolset.tools)
        most = max(scores) or 1.0
        worth = [
            (score / most + WORTH) / math.sqrt(max(cost, 1))
            for score, cost in zip(scores, costs, strict=True)
        ]
        others = set(range(len(costs))) - set(kept)
        return sorted(others, key=lambda place: (-worth[place], place))

    def _said(self) -> list[str]:
        spoken = (
            message.content
            for message in reversed(self.facts.history)
            if message.role in {Role.HUMAN, Role.AI} and message.content
        )
        return [text for text, _ in zip(spoken, range(SAID), strict=False)]

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
    """Yield the names of tools whose calls a model sees, or has just made."""
    shown = facts.history if facts.layout == "chat" else facts.history[-RECENT:]
    for message in (*facts.run, *shown):
        yield from _calls(message)


def _calls(message: Message) -> Iterator[str]:
    yield from (call.name for call in message.tool_calls)
    if message.role is Role.TOOL and message.name:
        yield message.name


def _name(tool: Tool) -> str:
    function = tool.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""
