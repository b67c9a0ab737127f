"""Engine strategies within a budget, over a caller's own messages."""

import pytest

from formatters.model import Row
from service.budget.strategies.middle_out import MiddleOut
from service.budget.strategies.oldest_first import OldestFirst
from service.conversation.sending import row_tokens
from service.conversation.strategies import ContextStrategy, WindowSizeContext, choose, read_rule
from service.conversation.units import read_units
from tests.unit.service.conversation.managing import SIMPLE, contents
from tests.unit.service.conversation.talk import (
    Said,
    calls,
    function_call,
    parts,
    response,
    result,
    results,
    said,
    uses,
)

#: 13 tokens each, by quarters of characters.
LONG = "x" * 36


def price(row: Row) -> int:
    """Return the tokens of a message."""
    return row_tokens(row, SIMPLE.count)


def chosen(rows: list[Said], strategy: object, budget: int) -> list[Row]:
    """Return what is left of messages."""
    rule = read_rule(strategy)  # type: ignore[arg-type] # names and lists
    assert not isinstance(rule, ContextStrategy)
    return choose(read_units(rows), rule, budget, price)


def test_rules_have_names() -> None:
    """Or are given themselves."""
    window = WindowSizeContext(3)

    assert read_rule("middle_out") == MiddleOut()
    assert read_rule(window) is window
    assert read_rule(OldestFirst()) == OldestFirst()
    assert read_rule(["tool_result_clearing", "oldest_first"]).name == "composite"
    with pytest.raises(ValueError, match="nothing_first"):
        read_rule("nothing_first")


def test_a_unit_goes_as_a_whole() -> None:
    """And groups are not skipped: what is older than what doesn't fit goes too."""
    a, b, c, d = (said("assistant", "x" * size) for size in (40, 400, 40, 40))

    assert chosen([a, b, c, d], "oldest_first", 100) == [c, d]


def test_the_newest_message_of_the_user_stays() -> None:
    """Ahead of calls that alone are too much, where the source loses it."""
    rows = [said("user", LONG), said("user", LONG), calls("1"), result("1", "y" * 800)]

    assert chosen(rows, "oldest_first", 40) == rows[1:]
    assert chosen(rows, "importance", 40) == rows[1:]


@pytest.mark.parametrize(
    ("asked", "call", "found"),
    [
        (said("user", "x" * 80), uses("1"), results("1")),
        (parts("user", "x" * 80), parts("model", function_call()), parts("user", response())),
    ],
)
@pytest.mark.parametrize("strategy", ["oldest_first", "count_summary"])
def test_the_user_begins_where_an_api_wants_it(
    strategy: str, asked: Said, call: Said, found: Said
) -> None:
    """In Anthropic's and Gemini's shapes; the answer goes where the user's message has no room."""
    rows = [said("user", "y" * 400), asked, call, found, said("user", "And now?")]
    tokens = sum(map(price, rows[1:]))

    roomy = [row for row in chosen(rows, strategy, tokens + 30) if row["role"] != "system"]
    assert roomy == rows[1:]
    tight = [row for row in chosen(rows, strategy, tokens - 1) if row["role"] != "system"]
    assert tight == rows[4:]


def test_a_text_after_results_keeps_the_message_that_began_their_call() -> None:
    """Whatever the budget, since no API accepts the call as the first message."""
    rows = [said("user", "a"), uses("1"), results("1", text="And?"), said("user", "b" * 80)]
    began = [said("user", "x" * 400), *rows[:3]]

    assert chosen(began, "oldest_first", 5) == rows[:3]
    assert chosen(rows, "oldest_first", 5) == rows[3:]


def test_chat_messages_may_begin_with_an_answer() -> None:
    """OpenAI's API accepts that."""
    rows = [said("user", "x" * 80), calls("1"), result("1"), said("user", "And now?")]

    assert chosen(rows, "oldest_first", sum(map(price, rows[1:]))) == rows[1:]


@pytest.mark.parametrize("strategy", ["none", "window_size", "sliding_window", "smart_window"])
def test_a_strategy_without_a_budget_is_followed_by_one(strategy: str) -> None:
    """So that nothing is ever over it for the sake of older messages."""
    rows = [said("assistant", LONG) for _ in range(6)]

    assert chosen(rows, strategy, 30) == rows[-2:]


def test_cleared_results_are_tried_first() -> None:
    """On request: then no message goes."""
    rows = [calls("1"), result("1", "y" * 400), calls("2"), result("2"), said("user", "u")]
    left = chosen(rows, [{"name": "tool_result_clearing", "keep_recent_n": 1}, "oldest_first"], 60)

    assert contents(left) == ["", "[tool result cleared]", "", "found", "u"]


def test_system_messages_stay_and_count() -> None:
    """They are taken from the budget first."""
    rows = [said("system", LONG), *(said("assistant", LONG) for _ in range(4))]

    assert chosen(rows, "oldest_first", 40) == [rows[0], *rows[-2:]]


def test_a_sentence_replaces_what_is_left_out() -> None:
    """If the strategy has one, and it fits; it replaces the dropped messages."""
    rows = [said("system", "s"), *(said("user", LONG) for _ in range(30))]
    budget = price(rows[0]) + 10 * 13
    left = chosen(rows, "count_summary", budget)

    assert left[0] == rows[0]
    assert left[1]["role"] == "system"
    kept = len(left) - 2
    assert left[2:] == rows[-kept:]
    assert str(left[1]["content"]).startswith(f"Previous {30 - kept} turns: ")
    assert sum(map(price, left)) <= budget
    assert chosen(rows, "count_summary", budget * 5) == rows


def test_a_sentence_that_does_not_fit_is_not_said() -> None:
    """The newest message has the room."""
    rows = [said("user", LONG) for _ in range(30)]

    assert chosen(rows, "count_summary", 14) == rows[-1:]
