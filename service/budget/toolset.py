"""Tools that are offered together, and what a build makes of them, made once."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from formatters.model import Block, Tool

K = TypeVar("K")
V = TypeVar("V")

#: Sets that are remembered at most; their number is up to those who ask.
KNOWN_SETS: Final = 32
#: Blocks that are remembered of a set at most; tags are chosen by those who ask.
KNOWN_BLOCKS: Final = 8


def tools_json(tools: Sequence[Tool]) -> str:
    """Return the ``tools`` array as it is counted: without blanks, keys in their order."""
    return json.dumps(tools, ensure_ascii=False, separators=(",", ":"))


class Counter(Protocol):
    """What tells two counts of one text apart."""

    @property
    def name(self) -> str:
        """The tokenizer's name."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        ...


class Toolset:
    """Definitions of tools in their order, which nobody may change."""

    def __init__(self, tools: Sequence[Tool] = (), *, chosen: bool = False) -> None:
        self.tools = tuple(tools)
        #: Whether others were left out for what was asked: another question may get other tools.
        self.chosen = chosen
        #: The ``tools`` array.
        self.json = tools_json(self.tools)
        self._tokens: dict[str, int] = {}
        self._blocks: dict[frozenset[str], Block] = {}
        self._costs: dict[tuple[str, frozenset[str]], Sequence[int]] = {}
        self._parts: dict[tuple[int, ...], Toolset] = {}

    def tokens(self, counter: Counter) -> int:
        """Return the tokens of the array, 0 where it is empty; counted once by each counter."""
        if counter.name not in self._tokens:
            self._tokens[counter.name] = counter.count(self.json) if self.tools else 0
        return self._tokens[counter.name]

    def block(self, tags: frozenset[str], show: Callable[[], Block]) -> Block:
        """Return the block that shows the tools, made once for the tags it has to guard."""
        block = self._blocks.get(tags)
        if block is None:
            block = replace(show(), volatile=self.chosen)
            _remember(self._blocks, tags, block, KNOWN_BLOCKS)
        return block

    def costs(
        self, counter: Counter, tags: frozenset[str], price: Callable[[], Sequence[int]]
    ) -> Sequence[int]:
        """Return the tokens of each tool, counted once by each counter for the tags."""
        costs = self._costs.get((counter.name, tags))
        if costs is None:
            costs = price()
            _remember(self._costs, (counter.name, tags), costs, KNOWN_BLOCKS)
        return costs

    def part(self, places: Iterable[int]) -> "Toolset":
        """Return the set of some of the tools, in their order; made once while it is known."""
        chosen = tuple(sorted(places))
        part = self._parts.get(chosen)
        if part is None:
            part = Toolset([self.tools[place] for place in chosen], chosen=True)
            _remember(self._parts, chosen, part, KNOWN_SETS)
        return part


class Toolsets:
    """The toolsets of a registry, by its version and the names that were asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], Toolset] = {}

    def get(self, version: int, names: tuple[str, ...]) -> Toolset | None:
        """Return the set of these names, of all tools where there are none, if it is known."""
        return self._known.get((version, names))

    def put(self, version: int, names: tuple[str, ...], toolset: Toolset) -> None:
        """Remember a set."""
        _remember(self._known, (version, names), toolset, KNOWN_SETS)


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value; a table that is full begins anew, since few ever are."""
    if len(known) >= most:
        known.clear()
    known[key] = value
