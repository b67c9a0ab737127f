import pytest

from service.budget.groups import Group, cost, newest_that_fit


def groups(*sizes: int) -> list[Group]:
    """Return groups of these sizes, each one token smaller where it is the last."""
    return [
        Group(index=index, tokens=size, tokens_last=size - 1) for index, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(("sizes", "tokens"), [((), 0), ((5,), 4), ((5, 7), 11), ((1, 1, 1), 2)])
def test_cost(sizes: tuple[int, ...], tokens: int) -> None:
    """Only the last group costs what it costs as the last."""
    assert cost(groups(*sizes)) == tokens


@pytest.mark.parametrize(
    ("budget", "kept"),
    [(0, []), (2, []), (3, [2]), (23, [2]), (24, [1, 2]), (33, [1, 2]), (34, [0, 1, 2])],
)  # fmt: skip
def test_the_newest_that_fit(budget: int, kept: list[int]) -> None:
    """The newest groups are taken until one does not fit, to the token."""
    fitting = newest_that_fit(groups(10, 21, 4), budget)

    assert [group.index for group in fitting] == kept
    assert cost(fitting) <= budget


def test_no_gaps() -> None:
    """A small group behind one that does not fit is not taken."""
    assert [group.index for group in newest_that_fit(groups(1, 50, 10), 30)] == [2]


def test_no_groups() -> None:
    """Of no groups, all fit."""
    assert newest_that_fit([], 0) == ()
