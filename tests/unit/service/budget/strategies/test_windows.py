"""The strategies that count messages: window_size, sliding_window, smart_window."""

from dataclasses import replace
from typing import cast

import pytest

from formatters.model import Message, Role, ToolCall
from service.budget.groups import Group
from service.budget.strategies.relevance import Relevance
from service.budget.strategies.stable_window import StableWindow
from service.budget.strategies.windows import SlidingWindow, SmartWindow, WindowSize

#: More than everything costs: these strategies look at no tokens.
AMPLE = 1_000


def group(index: int, size: int = 1, *, calls: bool = False) -> Group:
    """Return a group of n messages."""
    call = (ToolCall(id="c", name="f"),) if calls else ()
    message = Message(id=f"m{index}", role=Role.AI, content="", tool_calls=call)
    return Group(index=index, tokens=1, tokens_last=1, size=size, messages=(message,))


#: The source's matrix: u0, a1 with its result, u3, a4 with its result, u6, a7.
MATRIX = [group(0), group(1, 2, calls=True), group(2), group(3, 2, calls=True), group(4), group(5)]


def kept(strategy: WindowSize | SlidingWindow | SmartWindow, budget: int = AMPLE) -> list[int]:
    """Return the indices of the groups that a strategy keeps of the matrix."""
    return [each.index for each in strategy.fit(MATRIX, budget).kept]


@pytest.mark.parametrize(
    ("most", "indices"),
    [
        (1, [5]),
        (2, [4, 5]),
        (3, [4, 5]),
        (4, [3, 4, 5]),
        (5, [2, 3, 4, 5]),
        (6, [2, 3, 4, 5]),
        (7, [1, 2, 3, 4, 5]),
        (8, [0, 1, 2, 3, 4, 5]),
        (20, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_window_holds_the_newest_messages_without_a_gap(most: int, indices: list[int]) -> None:
    """A group that does not go in whole ends it; no result is left without its call."""
    assert kept(WindowSize(max_messages=most)) == indices
    assert kept(SlidingWindow(window_size=most)) == indices


def test_a_sliding_window_of_nothing_keeps_nothing() -> None:
    """As in the source, where only system messages stay."""
    assert kept(SlidingWindow(window_size=0)) == []


@pytest.mark.parametrize(
    ("most", "plain", "initial", "tools", "both"),
    [
        (2, [4, 5], [0, 5], [3], [0, 5]),
        (3, [2, 4, 5], [0, 4, 5], [3, 5], [0, 3]),
        (4, [3, 4, 5], [0, 2, 4, 5], [1, 3], [0, 3, 5]),
        (5, [2, 3, 4, 5], [0, 3, 4, 5], [1, 3, 5], [0, 1, 3]),
        (6, [0, 2, 3, 4, 5], [0, 2, 3, 4, 5], [1, 3, 4, 5], [0, 1, 3, 5]),
        (7, [1, 2, 3, 4, 5], [0, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 1, 3, 4, 5]),
    ],
)
def test_a_smart_window_follows_the_sources_matrix(
    most: int, plain: list[int], initial: list[int], tools: list[int], both: list[int]
) -> None:
    """First messages are preserved, calls go first if asked to, and gaps are filled."""
    window = SmartWindow(max_messages=most)

    assert kept(window) == plain
    assert kept(replace(window, preserve_initial=1)) == initial
    assert kept(replace(window, prioritize_tools=True)) == tools
    assert kept(replace(window, preserve_initial=1, prioritize_tools=True)) == both


#: The same, with the newest message of the user pinned.
PINNED = [each._replace(pinned=each.index == 4) for each in MATRIX]


@pytest.mark.parametrize(
    ("strategy", "indices"),
    [
        (WindowSize(max_messages=1), [4]),
        (WindowSize(max_messages=2), [4, 5]),
        (WindowSize(max_messages=3), [4, 5]),
        (WindowSize(max_messages=4), [3, 4, 5]),
        (SlidingWindow(window_size=0), []),
        (SlidingWindow(window_size=1), [4]),
        (SmartWindow(max_messages=1), [4]),
        (SmartWindow(max_messages=2, preserve_initial=1), [0, 4]),
        (SmartWindow(max_messages=3, prioritize_tools=True), [3, 4]),
        (SmartWindow(max_messages=4, preserve_initial=1, prioritize_tools=True), [0, 3, 4]),
    ],
)
def test_a_pinned_group_has_its_place_first(
    strategy: WindowSize | SlidingWindow | SmartWindow, indices: list[int]
) -> None:
    """Whatever else is newer, preserved or preferred; a window of nothing still keeps nothing."""
    assert [each.index for each in strategy.fit(PINNED, AMPLE).kept] == indices


@pytest.mark.parametrize("strategy", [WindowSize(max_messages=2), SmartWindow(max_messages=2)])
def test_a_pinned_group_stays_however_old_and_large(strategy: WindowSize | SmartWindow) -> None:
    """What is left of the window goes to others, if anything is."""
    large = group(0, 3)._replace(pinned=True)
    old = group(0)._replace(pinned=True)

    assert [each.index for each in strategy.fit([large, group(1)], AMPLE).kept] == [0]
    assert [each.index for each in strategy.fit([old, group(1), group(2)], AMPLE).kept] == [0, 2]


def test_a_first_group_that_does_not_go_in_whole_is_not_preserved() -> None:
    """A call is never preserved without its result."""
    groups = [group(0, 2, calls=True), group(1), group(2)]
    window = SmartWindow(max_messages=2, preserve_initial=1)

    assert [each.index for each in window.fit(groups, AMPLE).kept] == [1, 2]
    assert [each.index for each in window.fit(groups[1:2], AMPLE).kept] == [1]


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        (
            lambda: WindowSize(max_messages=0),
            "max_messages has to be a whole number of at least 1, not 0",
        ),
        (
            lambda: SlidingWindow(window_size=cast("int", "10")),
            "window_size has to be a whole number of at least 0, not '10'",
        ),
        (
            lambda: SmartWindow(max_messages=True),
            "max_messages has to be a whole number of at least 1, not True",
        ),
        (
            lambda: SmartWindow(preserve_initial=-1),
            "preserve_initial has to be a whole number of at least 0, not -1",
        ),
        (
            lambda: SmartWindow(max_messages=3, preserve_initial=3),
            "preserve_initial has to be less than max_messages",
        ),
        (
            lambda: Relevance(recent_share=cast("float", "0.5")),
            "recent_share has to be a number between 0 and 1, not '0.5'",
        ),
        (lambda: StableWindow(chunk_share=0), "chunk_share has to be more than 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: object, reported: str) -> None:
    """When the strategy is made, not when it is used; a text is no number."""
    with pytest.raises(ValueError, match=f"^{reported}$"):
        wrong()  # type: ignore[operator] # a function that makes one


@pytest.mark.parametrize(
    "strategy",
    [WindowSize(max_messages=2), SlidingWindow(window_size=2), SmartWindow(max_messages=2)],
)
def test_what_a_window_drops_has_its_reason_and_the_budget_is_reported(
    strategy: WindowSize | SlidingWindow | SmartWindow,
) -> None:
    """A window that costs more than the budget says so."""
    fit = strategy.fit(MATRIX, 1)

    assert {decision.reason for decision in fit.decisions.values()} == {"window"}
    assert sorted(fit.decisions) == [0, 1, 2, 3]
    assert fit.over_budget
