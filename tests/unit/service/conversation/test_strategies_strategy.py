"""What all strategies can be asked."""

import pytest

from formatters.model import Row
from service.budget.estimates import HeuristicTokenCounter
from service.conversation.strategies import (
    ContextStrategy,
    SlidingWindowStrategy,
    ToolResultClearingStrategy,
    WindowSizeContext,
)
from tests.unit.service.conversation.talk import (
    calls,
    function_call,
    parts,
    response,
    result,
    results,
    said,
    uses,
)


def test_the_base_cannot_be_made() -> None:
    """A strategy has to say how it is applied."""
    with pytest.raises(TypeError, match="apply_context_strategy"):
        ContextStrategy()  # type: ignore[abstract]


class Nothing(ContextStrategy):
    """A strategy of a caller's own."""

    name = "nothing"

    def apply_context_strategy(
        self, messages: object, system_prompt: str | None = None
    ) -> list[Row]:
        """Keep nothing."""
        return []


async def test_a_strategy_of_ones_own_needs_one_method() -> None:
    """The others follow from it; with no limit it never asks to act."""
    own = Nothing()

    assert await own.compact([said("user", "hi")]) == []
    assert not own.should_compact([], 1_000_000)
    assert own.token_estimate([said("user", "a" * 40)]) == 14
    assert own.get_stats(3)["messages_in_context"] == 3


@pytest.mark.parametrize(
    "strategy", [SlidingWindowStrategy(2, 1_000), ToolResultClearingStrategy(2, 1_000)]
)
def test_only_more_than_the_limit_is_too_much(strategy: ContextStrategy) -> None:
    """As many tokens as the limit are not; the messages aren't looked at."""
    assert not strategy.should_compact([], 1_000)
    assert strategy.should_compact([], 1_001)


def test_windows_that_are_always_applied_never_ask() -> None:
    """SPADE_LLM's have no limit of tokens."""
    assert not WindowSizeContext(1).should_compact([], 1_000_000)


def test_messages_are_counted_by_what_they_say_in_any_shape() -> None:
    """4 a message, its text, each call's name and arguments, each result's content."""
    strategy = SlidingWindowStrategy(2, 1_000)
    # a name of 6 bytes are 2 tokens, arguments of 7 are 2, "found" 2 and {"found":1} 3
    assert strategy.token_estimate([uses("c1", "c2")]) == 4 + 2 * 4
    assert strategy.token_estimate([calls("c1", "c2")]) == 4 + 2 * 4
    assert strategy.token_estimate([parts("model", "four", function_call())]) == 4 + 1 + 4
    assert strategy.token_estimate([results("c1"), result("c1")]) == 2 * (4 + 2)
    assert strategy.token_estimate([parts("user", response())]) == 4 + 3
    assert strategy.token_estimate([]) == 0


def test_a_counter_of_ones_own_counts() -> None:
    """Such as one of another ratio."""
    half = HeuristicTokenCounter.with_ratio(2)

    assert SlidingWindowStrategy(2, 9, half).token_estimate([said("user", "a" * 40)]) == 24
