"""What is made of tools is made once."""

from typing import Any

import pytest

from formatters.model import Block
from service.budget import toolset
from service.budget.toolset import Toolset, Toolsets

LOOK = {"type": "function", "function": {"name": "look", "description": "Schau über den See"}}


class Letters:
    """A counter for which a letter is a token, and that knows what it was asked."""

    exact = True

    def __init__(self, name: str = "letters") -> None:
        self.name = name
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        """Return the length."""
        self.asked.append(text)
        return len(text)


def test_definitions_are_counted_once_by_each_counter() -> None:
    """A second build pays nothing; another tokenizer has another count."""
    tools, letters, others = Toolset([LOOK]), Letters(), Letters("others")

    assert [tools.tokens(letters), tools.tokens(letters)] == [len(tools.json)] * 2
    assert tools.tokens(others) == len(tools.json)
    assert letters.asked == others.asked == [tools.json]


def test_the_array_is_json_without_blanks_or_escapes() -> None:
    """Keys keep their order."""
    assert Toolset([LOOK]).json == (
        '[{"type":"function","function":{"name":"look","description":"Schau über den See"}}]'
    )


def test_no_tools_cost_nothing() -> None:
    """There is no array to be sent."""
    letters = Letters()

    assert Toolset().tokens(letters) == 0
    assert (Toolset().json, letters.asked) == ("[]", [])


def test_the_block_is_made_once_for_its_tags() -> None:
    """What a request adds to the tags to guard makes another block."""
    made: list[str] = []
    tools = Toolset([LOOK])

    def show() -> Block:
        made.append("once more")
        return Block(tag="CAPABILITIES", entries=())

    none, mood = frozenset[str](), frozenset({"MOOD"})
    first = tools.block(none, show)
    assert tools.block(none, show) is first
    assert tools.block(mood, show) is not first
    assert len(made) == 2


def test_each_tool_is_priced_once_for_a_counter_and_tags() -> None:
    """A second choice of tools pays nothing; another tokenizer has other prices."""
    priced: list[str] = []
    tools, none = Toolset([LOOK]), frozenset[str]()

    def price() -> list[int]:
        priced.append("once more")
        return [7]

    prices = [tools.costs(Letters(), none, price) for _ in range(2)]
    assert prices == [[7], [7]]
    assert len(priced) == 1
    tools.costs(Letters("others"), none, price)
    assert len(priced) == 2


def test_tags_that_strangers_choose_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full table begins anew."""
    monkeypatch.setattr(toolset, "MAX_VALUES", 2)
    tools = Toolset()
    sizes: list[int] = []
    for tag in "ABCDE":
        tools.block(frozenset({tag}), lambda: Block(tag="CAPABILITIES", entries=()))
        sizes.append(len(tools._blocks))

    assert sizes == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("asked", [(2, ()), (1, ("look",))])
def test_a_set_is_known_by_version_and_names(asked: Any) -> None:
    """Another version, or other names, is another set."""
    known, tools = Toolsets(), Toolset([LOOK])
    known.put(1, (), tools)

    assert known.get(1, ()) is tools
    assert known.get(*asked) is None
