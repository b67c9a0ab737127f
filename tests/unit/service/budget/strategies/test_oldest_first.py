import pytest

from service.budget.groups import Group
from service.budget.strategies.oldest_first import OldestFirst


def groups(*sizes: int) -> list[Group]:
    """Return groups of these sizes."""
    return [Group(index=n, tokens=size, tokens_last=size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "budget", "kept", "over"),
    [
        ([13] * 10, 52, [6, 7, 8, 9], False),
        ([13] * 10, 65, [5, 6, 7, 8, 9], False),
        ([13] * 10, 64, [6, 7, 8, 9], False),
        ([13] * 10, 130, list(range(10)), False),
        ([13] * 10, 12, [9], True),
        ([13] * 10, 0, [9], True),
        ([13] * 10, -5, [9], True),
        ([14, 104, 14, 14], 100, [2, 3], False),
        ([40, 200], 40, [1], True),
        ([13], 0, [0], True),
        ([], 0, [], False),
        ([], 100, [], False),
    ],
)
def test_what_is_kept(sizes: list[int], budget: int, kept: list[int], *, over: bool) -> None:
    """The newest groups stay without a gap, and the newest of all whatever it costs."""
    fit = OldestFirst().fit(groups(*sizes), budget)

    assert [group.index for group in fit.kept] == kept
    assert fit.over_budget is over


def test_why_the_others_go() -> None:
    """Every group that goes is called older."""
    fit = OldestFirst().fit(groups(13, 13, 13), 13)

    assert {index: decision.reason for index, decision in fit.decisions.items()} == {
        0: "older",
        1: "older",
    }
