"""The strategy whose window moves in chunks, alone and next to others."""

import pytest

from formatters.model import Message, Role
from service.budget.groups import Group, StableBudget
from service.budget.strategies.composite import Composite
from service.budget.strategies.oldest_first import OldestFirst
from service.budget.strategies.relevance import Relevance
from service.budget.strategies.stable_window import StableWindow
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.windows import CountSummary
from service.budget.strategy_names import UnknownStrategyError, read_strategy


def groups(length: int, tokens: int = 10) -> list[Group]:
    """Return groups of n tokens each."""
    messages = [Message(id=f"m{n}", role=Role.HUMAN, content="") for n in range(length)]
    return [Group(n, tokens, tokens, (message,)) for n, message in enumerate(messages)]


def test_it_keeps_what_fits_from_where_a_chunk_ends() -> None:
    """What is left out lies outside its window, and the next builds begin there too."""
    fits = [StableWindow().fit(groups(length), 100) for length in (10, 11, 13, 14)]

    assert [fit.kept[0].index for fit in fits] == [0, 3, 3, 5]
    assert [len(fit.decisions) for fit in fits] == [0, 3, 3, 5]
    assert {decision.reason for decision in fits[3].decisions.values()} == {"window"}
    assert [fit.stable_prefix for fit in fits] == [True] * 4
    assert not any(fit.over_budget for fit in fits)


def test_the_newest_stays_at_any_cost() -> None:
    """That it is shortened then is nothing that the next build will see again."""
    fit = StableWindow().fit(groups(3, tokens=200), 100)

    assert [group.index for group in fit.kept] == [2]
    assert fit.over_budget
    assert not fit.stable_prefix


def test_it_goes_by_what_stays_from_build_to_build() -> None:
    """A build that has a bit more room begins where the others do."""
    steady = StableWindow().with_stable_budget(StableBudget(80, whole=True))
    begins = {steady.fit(groups(20), budget).kept[0].index for budget in range(80, 200, 9)}

    assert begins == {12}


@pytest.mark.parametrize("share", [0.0, -1.0, 1.1])
def test_a_chunk_is_a_share(share: float) -> None:
    """Of nothing there are no multiples."""
    with pytest.raises(UnknownStrategyError, match="chunk_share has to"):
        read_strategy({"name": "stable_window", "chunk_share": share})


def test_in_a_list_each_is_reported() -> None:
    """A list is still where whatever left something out is."""
    still = Composite(strategies=(ToolResultClearing(), StableWindow(chunk_share=0.5)))
    reported = still.with_stable_budget(StableBudget(100, whole=True))

    assert still.stable_prefix
    assert not Composite(strategies=(OldestFirst(),)).stable_prefix
    assert reported.fit(groups(20), 100).stable_prefix
    assert [group.index for group in reported.fit(groups(20), 100).kept] == list(range(10, 20))
    beside = Composite(strategies=(CountSummary(max_items=5), StableWindow()))
    assert not beside.fit(groups(20), 100).stable_prefix


def test_relevance_keeps_its_newest_still_if_asked() -> None:
    """Within their share, from where a chunk ends; without a chunk they give way one by one."""
    moving = Relevance(recent_share=0.5)
    still = Relevance(recent_share=0.5, chunk_share=0.2)
    steady = still.with_stable_budget(StableBudget(200, whole=False))

    assert (moving.stable_prefix, still.stable_prefix) == (False, True)
    assert {len(moving.recent(groups(n), 200).kept) for n in range(20, 30)} == {10}
    begins = [steady.recent(groups(n), 200).kept[0].index for n in range(20, 30)]
    assert begins == [12] * 3 + [16] * 4 + [20] * 3
    assert [still.recent(groups(n), 200).kept[0].index for n in range(20, 30)] == begins
    large = still.recent(groups(3, tokens=300), 200)
    assert (large.kept[0].index, large.stable_prefix) == (2, False)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_chunk_of_relevance_is_a_share(share: float) -> None:
    """0 stands for none."""
    with pytest.raises(UnknownStrategyError, match="chunk_share has to be a number"):
        read_strategy({"name": "relevance", "chunk_share": share})
