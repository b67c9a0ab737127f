import pytest

from service.budget.groups import Group
from service.budget.strategies.middle_out import MiddleOut


def groups(*sizes: int) -> list[Group]:
    """Return groups of these sizes."""
    return [Group(index=n, tokens=size, tokens_last=size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "budget", "kept", "over"),
    [
        ([13] * 10, 65, [0, 6, 7, 8, 9], False),
        ([13] * 10, 64, [0, 7, 8, 9], False),
        ([13] * 10, 130, list(range(10)), False),
        ([13] * 10, 1_000, list(range(10)), False),
        ([13] * 10, 26, [0, 9], False),
        ([13] * 10, 12, [0, 9], True),
        ([13] * 10, 1, [0, 9], True),
        ([13] * 10, 0, [9], True),
        ([13] * 10, -5, [9], True),
        ([14, 104, 14, 14], 100, [0, 2, 3], False),
        ([14, 14, 104, 14], 100, [0, 3], False),
        ([13, 13], 0, [0, 1], True),
        ([13, 13], 26, [0, 1], False),
        ([13], 0, [0], True),
        ([], 0, [], False),
        ([104, 14, 14], 100, [0, 2], True),
    ],
)
def test_what_is_kept(sizes: list[int], budget: int, kept: list[int], *, over: bool) -> None:
    """The first and the newest group stay whatever they cost, and the rest is filled up."""
    fit = MiddleOut().fit(groups(*sizes), budget)

    assert [group.index for group in fit.kept] == kept
    assert fit.over_budget is over


def test_why_the_others_go() -> None:
    """Every group that goes, goes from the middle."""
    fit = MiddleOut().fit(groups(13, 13, 13), 26)

    assert {index: decision.reason for index, decision in fit.decisions.items()} == {1: "middle"}


def test_without_a_budget_the_others_go_for_the_same_reason() -> None:
    """The first one too, which no budget brings back next to the newest."""
    fit = MiddleOut().fit(groups(13, 13, 13), 0)

    assert {index: decision.reason for index, decision in fit.decisions.items()} == {
        0: "middle",
        1: "middle",
    }


def test_the_least_budgets() -> None:
    """The newest needs its own tokens, the first both, any other what lies behind it as well."""
    assert MiddleOut().least(groups(13, 7, 5)) == {0: 18, 1: 25, 2: 5}
    assert MiddleOut().least(groups(13, 7)) == {0: 20, 1: 7}
