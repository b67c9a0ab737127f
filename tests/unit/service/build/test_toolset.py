"""What is made of tools is made once."""

import re
from typing import Any

import pytest

from formatters.guard import GUARD, OFF, Guard
from formatters.model import Facts
from service.build import tools as module
from service.build.tools import Toolset

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


def facts(**changes: Any) -> Facts:
    """Return the facts that decide how a block looks."""
    return Facts(current_input="Hi", **changes)


def test_the_block_is_made_once_for_a_guard_and_a_form() -> None:
    """Another guard or form makes another block."""
    tools = Toolset([LOOK])

    first = tools.block(facts())
    assert tools.block(facts()) is first
    assert tools.block(facts(guard=OFF)) is not first
    assert tools.block(facts(capabilities="names")).text.endswith("### look")
    assert not tools.block(facts(capabilities="none")).has_text


def test_each_tool_is_counted_once_for_a_counter_and_a_form() -> None:
    """A second choice of tools counts nothing; another tokenizer counts again."""
    tools, letters = Toolset([LOOK]), Letters()

    costs = tools.costs(letters, facts())
    counted = len(letters.asked)
    assert tools.costs(letters, facts()) is costs
    assert len(letters.asked) == counted
    assert tools.costs(Letters("others"), facts()) is not costs


def test_a_tool_costs_what_is_sent_of_it() -> None:
    """Its definition, and its text in the block, if there is one."""
    tools, letters = Toolset([LOOK]), Letters()
    forms = ("full", "names", "none")

    full, names, none = (sum(tools.costs(letters, facts(capabilities=form))) for form in forms)
    assert none == len(tools.json)
    assert names == none + len("### look\n")
    assert full > names


def test_other_guards_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full table starts empty again."""
    monkeypatch.setattr(module, "MAX_VALUES", 2)
    tools = Toolset()
    sizes: list[int] = []
    for guard in (GUARD, OFF, Guard(re.compile("a")), Guard(re.compile("b")), GUARD):
        tools.block(facts(guard=guard))
        sizes.append(len(tools._cache))

    assert sizes == [1, 2, 1, 2, 1]
