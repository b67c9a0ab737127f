"""Sets of tools that are offered together, with cached results of rendering and counting them."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from formatters.model import Block, Tool
from service.ports.services import TokenCounter

K = TypeVar("K")
V = TypeVar("V")

#: Limit of the cached sets; requests can name any number of them.
MAX_SETS: Final = 32
#: Limit of the cached values of a set, by the tags of blocks, which requests choose.
MAX_VALUES: Final = 8


def tools_json(tools: Sequence[Tool]) -> str:
    """Return the ``tools`` array as it is counted: without spaces, keys in their order."""
    return json.dumps(tools, ensure_ascii=False, separators=(",", ":"))


class Toolset:
    """An ordered set of tool definitions, which must not be modified."""

    def __init__(self, tools: Sequence[Tool] = (), *, chosen: bool = False) -> None:
        self.tools = tuple(tools)
        #: Whether the tools were chosen for the input, so that another input may get others.
        self.chosen = chosen
        #: The ``tools`` array.
        self.json = tools_json(self.tools)
        self._tokens: dict[str, int] = {}
        self._blocks: dict[frozenset[str], Block] = {}
        self._costs: dict[tuple[str, frozenset[str]], Sequence[int]] = {}
        self._subsets: dict[tuple[int, ...], Toolset] = {}

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens of the array, 0 if it is empty."""
        if not self.tools:
            return 0
        return _cached(
            self._tokens, counter.name, lambda: counter.count(self.json), limit=MAX_VALUES
        )

    def block(self, tags: frozenset[str], show: Callable[[], Block]) -> Block:
        """Return the block that shows the tools and guards these tags."""
        return _cached(
            self._blocks, tags, lambda: replace(show(), volatile=self.chosen), limit=MAX_VALUES
        )

    def costs(
        self, counter: TokenCounter, tags: frozenset[str], compute: Callable[[], Sequence[int]]
    ) -> Sequence[int]:
        """Return the tokens of each tool in a block that guards these tags."""
        return _cached(self._costs, (counter.name, tags), compute, limit=MAX_VALUES)

    def subset(self, indices: Iterable[int]) -> "Toolset":
        """Return the set of some of the tools, in their order, as chosen for an input."""
        chosen = tuple(sorted(indices))
        return _cached(
            self._subsets,
            chosen,
            lambda: Toolset([self.tools[index] for index in chosen], chosen=True),
            limit=MAX_SETS,
        )


class Toolsets:
    """The toolsets of a registry, by its version and the requested names."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], Toolset] = {}

    def get(self, version: int, names: tuple[str, ...]) -> Toolset | None:
        """Return the cached set of these names, or of all tools without names; else None."""
        return self._known.get((version, names))

    def put(self, version: int, names: tuple[str, ...], toolset: Toolset) -> None:
        """Cache a set."""
        _cached(self._known, (version, names), lambda: toolset, limit=MAX_SETS)


def _cached(table: dict[K, V], key: K, make: Callable[[], V], *, limit: int) -> V:
    """Return the cached value of a key, computed on first use; a full table is cleared."""
    value = table.get(key)
    if value is None:
        value = make()
        if len(table) >= limit:
            table.clear()
        table[key] = value
    return value
