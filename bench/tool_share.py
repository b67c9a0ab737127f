"""Measure whether the tool that is called next is among those that fit a share of the tokens.

    python -m bench.tool_share --data DIR [--json]

Three sets of cases, from DIR's ``tools`` and ``tau_airline``:

- ``queries``: for each set of one tool with a query, the query is the input, and the tools of all
  sets are offered; the set's own tool should be kept.
- ``airline``: for each first call of a tool in a trajectory, the last human message is the input,
  the messages before it are the history, and the set's own tools are offered.
- ``airline_among_all``: the same with the tools of all sets, in random order.

For each share of the tokens of all offered tools, array and `[CAPABILITIES]` together: the share of
cases in which the tool is kept by ``chosen``, the service's choice; by ``first``, the tools in
their order while they fit; by ``cheapest``, the smallest. All keep tools that were called before.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.json_lines import read_lines
from bench.report import over_data
from formatters.model import Facts, Tool
from formatters.rows import read_rows
from prompts.capabilities import capabilities
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.budget.counting import block_tokens
from service.build.tools import Toolset, limit_tools
from service.ports.services import TokenCounter

SHARES: Final = (0.05, 0.1, 0.2, 0.5)
AIRLINE: Final = "tau_airline"
SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the tool that it needs."""

    facts: Facts
    toolset: Toolset
    needed: str


@dataclass(frozen=True, slots=True)
class Case(Asked):
    """The same, with the tokens of each tool alone."""

    costs: Sequence[int]


@dataclass(frozen=True, slots=True)
class Picker:
    """Keeps tools by their order."""

    rank: Callable[[Sequence[int]], Sequence[int]]

    def __call__(self, case: Case, limit: int, _: TokenCounter) -> set[str]:
        """Return the names of the tools that fit."""
        tools = case.toolset.tools
        costs = case.costs
        called = {call.name for message in case.facts.history for call in message.tool_calls}
        kept = {_name(tool) for tool in tools if _name(tool) in called}
        room = limit - sum(
            cost for tool, cost in zip(tools, costs, strict=True) if _name(tool) in kept
        )
        for place in self.rank(costs):
            if _name(tools[place]) not in kept and costs[place] <= room:
                kept.add(_name(tools[place]))
                room -= costs[place]
        return kept


def chosen(case: Case, limit: int, counter: TokenCounter) -> set[str]:
    """Return the names of the tools that the service keeps."""
    fitting, _ = limit_tools(case.toolset, case.facts, limit, counter)
    return {_name(tool) for tool in fitting.tools}


PICKERS: Final[Mapping[str, Callable[[Case, int, TokenCounter], set[str]]]] = {
    "chosen": chosen,
    "first": Picker(lambda costs: range(len(costs))),
    "cheapest": Picker(lambda costs: sorted(range(len(costs)), key=costs.__getitem__)),
}


def measure(data: Path) -> dict[str, Any]:
    """Return the share of cases in which the tool is kept, by set, picker and share."""
    counter = TiktokenTokenizers().counter("o200k_base")
    return {name: _figures(asked, counter) for name, asked in _sets(data)}


def _figures(asked: Sequence[Asked], counter: TokenCounter) -> dict[str, Any]:
    toolset = asked[0].toolset
    whole = _tokens(toolset, counter)
    costs = [_tokens(Toolset([tool]), counter) for tool in toolset.tools]
    cases = [Case(each.facts, each.toolset, each.needed, costs) for each in asked]
    kept = {
        name: {
            str(share): round(
                fmean(case.needed in pick(case, int(share * whole), counter) for case in cases), 3
            )
            for share in SHARES
        }
        for name, pick in PICKERS.items()
    }
    return {"cases": len(cases), "tools": len(cases[0].toolset.tools), "tokens": whole, **kept}


def _sets(data: Path) -> Iterator[tuple[str, list[Asked]]]:
    sets = list(read_lines(data / "tools.jsonl.gz"))
    every = {_name(tool): tool for each in sets for tool in each["tools"]}
    yield "queries", _queries(sets, Toolset(list(every.values())))
    own = next(each["tools"] for each in sets if each["id"] == AIRLINE)
    trajectories = list(read_lines(data / f"{AIRLINE}.jsonl.gz"))
    yield "airline", list(_calls(trajectories, Toolset(own)))
    mixed = list({**every, **{_name(tool): tool for tool in own}}.values())
    random.Random(SEED).shuffle(mixed)  # noqa: S311 - an order, no secret
    yield "airline_among_all", list(_calls(trajectories, Toolset(mixed)))


def _queries(sets: Sequence[Mapping[str, Any]], toolset: Toolset) -> list[Asked]:
    return [
        Asked(Facts(current_input=_asked(each["query"])), toolset, _name(each["tools"][0]))
        for each in sets
        if "query" in each and len(each["tools"]) == 1
    ]


def _asked(query: object) -> str:
    if isinstance(query, str):
        return query
    turns = query if isinstance(query, list) else []
    return "\n".join(m["content"] for turn in turns for m in turn if m["role"] == "user")


def _calls(trajectories: Sequence[Mapping[str, Any]], toolset: Toolset) -> Iterator[Asked]:
    for trajectory in trajectories:
        said = [each for each in trajectory["messages"] if each["role"] != "system"]
        called: set[str] = set()
        asked = 0
        for place, message in enumerate(said):
            if message["role"] == "user":
                asked = place
            for call in message.get("tool_calls") or ():
                name = call["function"]["name"]
                if name not in called:
                    yield Asked(_facts(said, asked), toolset, name)
                called.add(name)


def _facts(said: Sequence[Mapping[str, Any]], asked: int) -> Facts:
    rows = [
        {
            "id": f"m{place}",
            "role": each["role"],
            "content": each["content"] or "",
            "metadata": {"tool_calls": each.get("tool_calls") or []},
        }
        for place, each in enumerate(said[:asked])
    ]
    return Facts(current_input=said[asked]["content"], history=read_rows(rows), layout="chat")


def _tokens(toolset: Toolset, counter: TokenCounter) -> int:
    block = capabilities(Facts(current_input="", tools=toolset.tools))
    return toolset.tokens(counter) + block_tokens(block, counter.count)


def _name(tool: Tool) -> str:
    function = tool["function"]
    return str(function["name"]) if isinstance(function, Mapping) else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = over_data(__doc__, "a folder with tools.jsonl.gz").parse_args(arguments)
    found = measure(options.data)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'share of tokens':<40}" + "".join(f"{share:>8}" for share in SHARES))
    for name, figures in found.items():
        print(f"{name}: {figures['cases']} cases, {figures['tools']} tools of {figures['tokens']}")
        for picker in PICKERS:
            kept = figures[picker].values()
            print(f"  {picker:<38}" + "".join(f"{each:>8.3f}" for each in kept))


if __name__ == "__main__":
    main()
