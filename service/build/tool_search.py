"""Answer the model's searches for deferred tools with the definitions that fit the query best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from formatters.deferred import NOTHING_FOUND, TOO_LONG, read_query, write_definition
from formatters.model import Message, ToolCall
from service.build.tools import Toolset
from service.ports.services import TokenCounter
from service.wire.tool_definitions import tool_name

#: The searches of one message that are answered; they share the tokens of one.
MAX_SEARCHES: Final = 8
#: The characters of a query that count.
MAX_QUERY_CHARS: Final = 2_000
#: Scores are divided by this power of a definition's tokens, so that several short ones may take
#: the place of a long one that fits little better.
COST_POWER: Final = 0.25
#: The most names in an answer that has no definition.
MAX_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """Answers calls of ``search_tools``; the answer depends only on query and registry.

    So it is the same in each build, and a provider's cache keeps what precedes it.
    """

    toolset: Toolset
    #: Limit of the tokens of what the searches of one message find.
    limit: int
    counter: TokenCounter

    def __call__(self, message: Message, call: ToolCall) -> str | None:
        """Return the definitions that a search finds; None if the call isn't answered here."""
        query = read_query(call)
        searches = [each for each in message.tool_calls if read_query(each) is not None]
        if query is None or len(searches) > MAX_SEARCHES:
            return None
        return self.find(query[:MAX_QUERY_CHARS], self.limit // len(searches))

    def find(self, query: str, limit: int) -> str:
        """Return a line for each tool with words of the query, the best first, while they fit."""
        key = ("found", query, limit, self.counter.name)
        return self.toolset.cached(key, lambda: self._find(query, limit))

    def _find(self, query: str, limit: int) -> str:
        tools = self.toolset.deferred
        lines, costs = self._definitions()
        scores = self.toolset.rank(query)
        ranked = sorted(
            (index for index, score in enumerate(scores) if score > 0),
            key=lambda index: (-scores[index] / costs[index] ** COST_POWER, index),
        )
        found = "".join(lines[index] for index in _fill(ranked, costs, limit))
        if found or not ranked:
            return found.rstrip("\n") or NOTHING_FOUND
        return f"{TOO_LONG}{', '.join(tool_name(tools[i]) for i in ranked[:MAX_NAMES])})"

    def _definitions(self) -> tuple[Sequence[str], Sequence[int]]:
        """Return the line of each deferred tool, and its tokens."""

        def write() -> tuple[Sequence[str], Sequence[int]]:
            lines = [write_definition(tool) for tool in self.toolset.deferred]
            return lines, [self.counter.count(line) for line in lines]

        return self.toolset.cached(("definitions", self.counter.name), write)


def _fill(ranked: Sequence[int], costs: Sequence[int], limit: int) -> Iterator[int]:
    for index in ranked:
        if costs[index] <= limit:
            limit -= costs[index]
            yield index
