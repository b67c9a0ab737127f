"""The counter that estimates."""

from datetime import date
from typing import Any

import pytest

from service.budget.estimates import HeuristicTokenCounter

IMAGE = {"type": "image"}


def text(length: int, kind: str = "text", key: str = "text") -> dict[str, Any]:
    """Return a block with a text of so many characters."""
    return {"type": kind, key: "a" * length}


@pytest.mark.parametrize(
    ("said", "tokens"),
    [("", 0), ("abcd", 1), ("abcde", 2), ("Hello, world!", 4), ("人工智能", 3), ("\ud800", 1)],
)
def test_a_text_is_a_quarter_of_its_bytes_rounded_up(said: str, tokens: int) -> None:
    """Bytes of UTF-8, so that scripts with large characters are not underrated."""
    assert HeuristicTokenCounter().count(said) == tokens
    assert HeuristicTokenCounter().estimate_text(said) == tokens


def test_the_ratio_can_be_set() -> None:
    """Forty letters at two a token are twenty."""
    assert HeuristicTokenCounter.with_ratio(2.0).count("a" * 40) == 20
    assert HeuristicTokenCounter.with_ratio(3.5).count("a" * 8) == 3
    assert HeuristicTokenCounter.with_ratio(0.5).count("a" * 8) == 16
    with pytest.raises(ValueError, match=r"^chars_per_token has to be more than 0$"):
        HeuristicTokenCounter.with_ratio(0)


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("a" * 40, 14),
        ([text(40)], 14),
        ([], 4),
        (None, 4),
        (7, 4),
        ([IMAGE], 304),
        ([{"type": "document"}], 504),
        ([text(40, "compaction", "content")], 14),
        ([text(20, "thinking", "thinking")], 9),
        ([text(16, "redacted_thinking", "data")], 8),
        ([{"type": "tool_use", "name": "a" * 8, "input": {}}], 7),
        ([{"type": "tool_use", "name": "a", "input": {"q": "x"}}], 8),
        ([text(40), IMAGE, text(8)], 316),
        ([{"type": "tool_result", "content": [text(20), IMAGE]}], 309),
        ([{"type": "tool_result", "content": "a" * 20}], 9),
        ([{"type": "unknown", "text": "a" * 40}, "loose", {}], 4),
    ],
)
def test_a_message_costs_four_and_its_blocks(content: object, tokens: int) -> None:
    """Each kind of block as the source's table has it."""
    assert HeuristicTokenCounter().estimate_messages([{"content": content}]) == tokens


def test_messages_and_tools_add_up() -> None:
    """None cost nothing; each is counted by itself."""
    counter = HeuristicTokenCounter()
    tool = {"name": "abcde", "description": "abcd", "input_schema": {"type": "object"}}

    assert counter.estimate_messages([]) == counter.estimate_tools([]) == 0
    assert counter.estimate_messages([{"content": "a"}] * 3) == 15
    assert counter.estimate_tools([tool]) == 2 + 1 + 5
    assert counter.estimate_tools([tool, tool, {}]) == 2 * 8 + 1
    assert not counter.exact


@pytest.mark.parametrize(
    ("input_", "tokens"),
    [
        ({"a": 1, "b": 2, "c": 3}, 5),
        ({"a": "äöüß"}, 4),
        ({"a": date(2025, 12, 9)}, 5),
    ],
)
def test_json_is_counted_as_it_is_sent(input_: dict[str, Any], tokens: int) -> None:
    """Without blanks and with every letter as it is; what JSON doesn't know counts as its text."""
    content = [{"type": "tool_use", "name": "", "input": input_}]

    assert HeuristicTokenCounter().estimate_messages([{"content": content}]) == 4 + tokens
