"""SPADE_LLM's strategies."""

from collections.abc import Callable

import pytest

from service.conversation.strategies import (
    ContextStrategy,
    NoContextManagement,
    SmartWindowSizeContext,
    WindowSizeContext,
)
from tests.unit.service.conversation.talk import EXAMPLE, calls, names, result, said


def kept(strategy: ContextStrategy) -> str:
    """Return the names of what a strategy keeps of the example."""
    return names(strategy.apply_context_strategy(EXAMPLE))


@pytest.mark.parametrize(
    ("most", "window", "smart", "initial", "tools", "both"),
    [
        (1, "u6", "u6", None, "u6", None),
        (2, "u6 a7", "u6 a7", "u0 u6", "u6 a7", "u0 u6"),
        (3, "u6 a7", "u3 u6 a7", "u0 u6 a7", "a4 r2 u6", "u0 u6 a7"),
        (4, "a4 r2 u6 a7", "a4 r2 u6 a7", "u0 u3 u6 a7", "a4 r2 u6 a7", "u0 a4 r2 u6"),
        (
            5,
            "u3 a4 r2 u6 a7",
            "u3 a4 r2 u6 a7",
            "u0 a4 r2 u6 a7",
            "a1 r1 a4 r2 u6",
            "u0 a4 r2 u6 a7",
        ),
        (
            6,
            "u3 a4 r2 u6 a7",
            "u0 u3 a4 r2 u6 a7",
            "u0 u3 a4 r2 u6 a7",
            "a1 r1 a4 r2 u6 a7",
            "u0 a1 r1 a4 r2 u6",
        ),
        (
            7,
            "a1 r1 u3 a4 r2 u6 a7",
            "a1 r1 u3 a4 r2 u6 a7",
            "u0 u3 a4 r2 u6 a7",
            "a1 r1 u3 a4 r2 u6 a7",
            "u0 a1 r1 a4 r2 u6 a7",
        ),
    ],
)
def test_the_selection_matrix(
    most: int, window: str, smart: str, initial: str | None, tools: str, both: str | None
) -> None:
    """SPADE_LLM's, but that no call loses its result and the user's newest message stays."""
    assert kept(WindowSizeContext(most)) == window
    assert kept(SmartWindowSizeContext(most)) == smart
    assert kept(SmartWindowSizeContext(most, prioritize_tools=True)) == tools
    if initial and both:
        assert kept(SmartWindowSizeContext(most, 1)) == initial
        assert kept(SmartWindowSizeContext(most, 1, prioritize_tools=True)) == both


@pytest.mark.parametrize(
    "strategy", [NoContextManagement(), WindowSizeContext(), SmartWindowSizeContext(8)]
)
def test_what_is_within_the_limit_stays_as_it_is(strategy: ContextStrategy) -> None:
    """The same messages, in a list of the caller's own."""
    assert strategy.apply_context_strategy(EXAMPLE, "You are helpful") == EXAMPLE
    assert strategy.apply_context_strategy(EXAMPLE) is not EXAMPLE


def test_first_messages_that_are_a_call_without_room_for_its_result_are_not_preserved() -> None:
    """Of u0, a call and its result, 2 initial messages are u0 alone; SPADE_LLM splits the pair."""
    history = [said("user", "u0"), calls("1"), result("1"), said("user", "u3")]
    history += [said("assistant", "a4"), said("user", "u5")]

    left = SmartWindowSizeContext(4, preserve_initial=2).apply_context_strategy(history)

    assert [message["content"] for message in left] == ["u0", "u3", "a4", "u5"]


def test_a_group_that_does_not_go_in_whole_is_passed_over() -> None:
    """Three calls and their results need four places of three."""
    history = [*(said("user", f"u{n}") for n in range(3)), calls("1", "2", "3")]
    history += [result("1"), result("2"), result("3")]

    assert SmartWindowSizeContext(3).apply_context_strategy(history) == history[:3]


@pytest.mark.parametrize("strategy", [WindowSizeContext(2), SmartWindowSizeContext(2)])
def test_system_messages_stay_and_are_not_counted(strategy: ContextStrategy) -> None:
    """Wherever they stand, they stay there."""
    history = [said("system", "s"), *EXAMPLE[:6], said("developer", "d"), *EXAMPLE[6:]]

    left = strategy.apply_context_strategy(history)

    assert [message["content"] for message in left] == ["s", "d", "u6", "a7"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: WindowSizeContext(0),
        lambda: SmartWindowSizeContext(0),
        lambda: SmartWindowSizeContext(preserve_initial=-1),
        lambda: SmartWindowSizeContext(3, 3),
    ],
)
def test_sizes_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    """When the strategy is made, as in SPADE_LLM."""
    with pytest.raises(ValueError, match=r"max_messages|preserve_initial"):
        wrong()


def test_the_defaults_are_the_sources() -> None:
    """20 messages, none preserved, no tools before others."""
    long = [said("user" if n % 2 else "assistant", str(n)) for n in range(30)]

    assert WindowSizeContext().apply_context_strategy(long) == long[10:]
    assert SmartWindowSizeContext().apply_context_strategy(long) == long[10:]


def test_statistics_come_from_a_number_of_messages() -> None:
    """How many stay at most and go at least, with the settings."""
    assert NoContextManagement().get_stats(50) == {
        "strategy": "none",
        "total_messages": 50,
        "messages_in_context": 50,
        "messages_dropped": 0,
    }
    assert WindowSizeContext(25).get_stats(50) == {
        "strategy": "window_size",
        "max_messages": 25,
        "total_messages": 50,
        "messages_in_context": 25,
        "messages_dropped": 25,
    }
    assert SmartWindowSizeContext(25, 3, prioritize_tools=True).get_stats(10) == {
        "strategy": "smart_window_size",
        "max_messages": 25,
        "preserve_initial": 3,
        "prioritize_tools": True,
        "total_messages": 10,
        "messages_in_context": 10,
        "messages_dropped": 0,
    }
