"""Groups with their prices."""

import pytest

from formatters.native import CLEARED
from service.budget.fit_history import clamp, make_groups
from service.budget.groups import Group
from tests.unit.service.budget.natives import called, history

LARGE = Group(index=0, tokens=101, tokens_last=100, savings={"a": 30, "b": 40, "c": 20})


@pytest.mark.parametrize("room", [100, 1_000])
def test_a_group_that_fits_is_weighed_as_it_is(room: int) -> None:
    """To the token."""
    assert clamp(LARGE, room) is LARGE


@pytest.mark.parametrize(
    ("room", "savings"),
    [
        (99, {"a": 29, "b": 40, "c": 20}),
        (70, {"a": 0, "b": 40, "c": 20}),
        (55, {"a": 0, "b": 25, "c": 20}),
        (20, {"a": 0, "b": 0, "c": 10}),
        (5, {"a": 0, "b": 0, "c": 0}),
    ],
)
def test_a_group_that_is_too_large_fills_the_room(room: int, savings: dict[str, int]) -> None:
    """Clearing saves only what is left once the excess is gone, from the first result on."""
    weighed = clamp(LARGE, room)

    assert (weighed.tokens, weighed.tokens_last, weighed.excess) == (room, room, 100 - room)
    assert weighed.savings == savings


def test_only_what_clearing_makes_smaller_saves_anything() -> None:
    """By a token at least."""
    stub = len(CLEARED) + 4
    (group,) = make_groups(history(entries=(called("a", stub - 1, stub, stub + 1),)), len)

    assert group.savings == {"a3": 1}
