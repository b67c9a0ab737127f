"""Counters that estimate."""

from datetime import date
from typing import Any

import pytest

from formatters.model import ChatMessage, Message, Role, ToolCall
from service.budget.estimates import (
    HeuristicTokenCounter,
    RaisedTokenCounter,
    SimpleTokenCounter,
    estimate_tokens,
    read_counter_name,
)


class Letters:
    """A counter for which a letter is a token."""

    name = "letters"
    exact = True

    def count(self, text: str) -> int:
        """Return the length."""
        return len(text)


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcdefg", 1), ("Hello, world!", 3), ("x" * 100, 25)]
)
def test_the_simple_estimate_is_a_quarter(text: str, tokens: int) -> None:
    """A quarter of the characters, rounded down, and 0 only for no text."""
    assert SimpleTokenCounter().count(text) == tokens


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": ""}, 4),
        ({"role": "user", "content": None}, 4),
        ({"role": "user", "content": "Hello there"}, 6),
        (ChatMessage(role="user", content="Hello there"), 6),
        (Message(id="m", role=Role.HUMAN, content="Hello there"), 6),
    ],
)
def test_a_message_costs_four_and_its_content(message: Any, tokens: int) -> None:
    """As read, as sent, and in OpenAI's form."""
    assert SimpleTokenCounter().count_messages([message]) == tokens


@pytest.mark.parametrize(
    "call",
    [
        ToolCall(id="c", name="search", arguments={"q": "x"}),
        ToolCall(id="c", name="search", arguments={"q": "x"}, text='{"q":"x"}'),
        ToolCall(id="c", name="search", text='{"q": "x'),
    ],
)
def test_a_call_costs_its_name_and_its_arguments(call: ToolCall) -> None:
    """As JSON with Python's blanks, and what can't be read as it came; the id is free."""
    message = ChatMessage(role="assistant", tool_calls=(call,))

    assert SimpleTokenCounter().count_messages([message]) == 4 + 1 + 2


def test_a_call_in_openais_form_costs_the_same() -> None:
    """Arguments in a string are read."""
    function = {"name": "search", "arguments": '{"q":"x"}'}
    asked = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}

    assert SimpleTokenCounter().count_messages([asked, asked]) == 14


def test_a_call_without_arguments_costs_its_name() -> None:
    """There is nothing else of it."""
    message = ChatMessage(role="assistant", tool_calls=(ToolCall(id="c", name="look"),))

    assert SimpleTokenCounter().count_messages([message]) == 5


@pytest.mark.parametrize(
    ("factor", "length", "tokens"), [(1.1, 100, 110), (1.25, 5, 7), (1.5, 0, 0), (1.05, 1, 2)]
)
def test_a_raised_count_is_rounded_up(factor: float, length: int, tokens: int) -> None:
    """It takes rather too many; floats don't add one more."""
    counter = RaisedTokenCounter(Letters(), factor)

    assert counter.count("x" * length) == tokens
    assert counter.name == f"letters*{factor}"
    assert not counter.exact


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("o200k_base", ("o200k_base", 1.0)),
        ("o200k_base*1.25", ("o200k_base", 1.25)),
        ("cl100k_base*2", ("cl100k_base", 2.0)),
        ("o200k_base*1", ("o200k_base", 1.0)),
        ("o200k_base*0.5", ("o200k_base*0.5", 1.0)),
        ("o200k_base*nan", ("o200k_base*nan", 1.0)),
        ("o200k_base*", ("o200k_base*", 1.0)),
        ("o200k_base*1.25x", ("o200k_base*1.25x", 1.0)),
    ],
)
def test_names_of_estimates_are_read(name: str, read: tuple[str, float]) -> None:
    """A factor that would lower a count is none, and the name one that nobody knows."""
    assert read_counter_name(name) == read


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("", 0),
        ("Hello, world!", 4),
        ({"role": "user", "parts": ["hello"]}, 9),
        ({"role": "model", "parts": ["ERROR: Failed"]}, 11),
        ({"role": "user", "parts": ["goodbye"]}, 9),
        ({"at": date(2025, 12, 9)}, 5),
        ("\N{GRINNING FACE}" * 2, 1),
        ("\N{GRINNING FACE}" * 3, 2),
        ("é" * 5, 2),
        ("\ud800" * 5, 2),
    ],
)
def test_reploids_estimate(content: Any, tokens: int) -> None:
    """A quarter of UTF-16's units, rounded up; an item of history is its whole JSON."""
    assert estimate_tokens(content) == tokens


IMAGE = {"type": "image"}


def text(length: int, kind: str = "text", key: str = "text") -> dict[str, Any]:
    """Return a block with a text of n characters."""
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
    [({"a": 1, "b": 2, "c": 3}, 5), ({"a": "äöüß"}, 4), ({"a": date(2025, 12, 9)}, 5)],
)
def test_json_is_counted_as_it_is_sent(input_: dict[str, Any], tokens: int) -> None:
    """Without blanks and with every letter as it is; what JSON doesn't know counts as its text."""
    content = [{"type": "tool_use", "name": "", "input": input_}]

    assert HeuristicTokenCounter().estimate_messages([{"content": content}]) == 4 + tokens


def test_images_of_chat_messages_cost_as_others() -> None:
    """Whatever the length of their address."""
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}

    assert HeuristicTokenCounter().estimate_messages([{"role": "user", "content": [part]}]) == 304
