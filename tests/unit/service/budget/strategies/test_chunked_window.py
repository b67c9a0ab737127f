"""Windows that move in chunks."""

from itertools import accumulate

import pytest

from formatters.model import Message, Role
from service.budget.groups import Group
from service.budget.strategies.stable_window import chunked_window


def groups(*tokens: int, starts: list[int] | None = None, roles: str = "") -> list[Group]:
    """Return groups of n tokens, of humans (h) or of the assistant (a)."""
    return [
        Group(
            index,
            size,
            size,
            (Message(id=f"m{index}", role=_role(roles, index), content=""),),
            start=starts[index] if starts else None,
        )
        for index, size in enumerate(tokens)
    ]


def _role(roles: str, index: int) -> Role:
    return Role.AI if roles[index : index + 1] == "a" else Role.HUMAN


def begin(given: list[Group], limit: int, chunk: int, *, whole: bool = True) -> int | None:
    """Return the index of the first group that is kept; None where none is."""
    kept = chunked_window(given, limit, chunk, whole=whole)
    assert list(kept) == given[len(given) - len(kept) :]
    return kept[0].index if kept else None


def test_the_window_stays_until_it_is_full() -> None:
    """It begins after a multiple of the chunk, and moves by a chunk when it has to."""
    begins = [begin(groups(*[10] * length), 100, 40) for length in range(1, 25)]

    assert begins == [0] * 10 + [4] * 4 + [8] * 4 + [12] * 4 + [16] * 2


def test_stored_totals_take_precedence_over_what_groups_cost() -> None:
    """What is shown costs more than what the store counts; both sides of a page agree."""
    starts = list(range(0, 20 * 7, 7))
    given = groups(*[10] * 20, starts=starts)

    assert begin(given, 100, 28) == 12
    assert begin(given[5:], 100, 28, whole=False) == 12


@pytest.mark.parametrize(("length", "expected"), [(10, 0), (11, 4), (12, 4)])
def test_all_that_there_is_stays_if_it_fits(length: int, expected: int) -> None:
    """The beginning of a conversation is a place that never moves."""
    assert begin(groups(*[10] * length), 100, 40) == expected


def test_what_was_cut_before_it_was_given_does_not_begin_the_window() -> None:
    """Its first group is another one each time, though all of it would fit."""
    given = groups(*[10] * 8, starts=[100 + 10 * n for n in range(8)])

    assert begin(given, 100, 40) == 0
    assert begin(given, 100, 40, whole=False) == 2  # after 120


def test_a_chunk_is_divided_where_it_would_leave_too_little() -> None:
    """Half of the room is used at the least, where groups are small enough."""
    given = groups(*[10] * 20)

    assert begin(given, 100, 1_000) == 12  # after 125, an eighth
    assert begin(groups(90, 5, 5), 100, 1_000) == 0
    assert begin(groups(60, 30, 20, 5), 100, 1_000) == 1
    assert begin(groups(200, 10, 60), 100, 1_000) == 1


def test_a_window_begins_with_a_turn() -> None:
    """Where a chunk ends among answers, at the next human message, if there is one."""
    roles = "haahaaahaaha"

    assert begin(groups(*[10] * 12, roles=roles), 100, 40) == 7
    assert begin(groups(*[10] * 12, roles="h" + "a" * 11), 100, 40) == 4


def test_the_size_of_a_chunk_is_rounded() -> None:
    """The same history has the same places where a few tokens more are left for it."""
    given = groups(*[10] * 40)

    assert len({begin(given, 200, chunk) for chunk in range(80, 96)}) == 1
    assert begin(given, 200, 0) == 20


@pytest.mark.parametrize("tokens", [(), (10, 101), (500,)])
def test_nothing_is_kept_without_room_for_the_newest(tokens: tuple[int, ...]) -> None:
    """The caller decides what happens to it."""
    assert begin(groups(*tokens), 100, 40) is None


def test_places_are_those_of_the_tokens_before() -> None:
    """A group that crosses several multiples is followed by one place, as others are."""
    sizes = [10, 10, 90, 10, 10, 10, 10, 10]
    starts = list(accumulate(sizes[:-1], initial=0))

    assert begin(groups(*sizes, starts=starts), 100, 40) == 3
