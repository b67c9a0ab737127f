import pytest

from formatters.model import Message, Role, ToolCall
from service.budget.groups import Group, cost, explain_ranking, newest_that_fit, suffix_costs


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
    """A small group after one that does not fit is not taken."""
    assert [group.index for group in newest_that_fit(groups(1, 50, 10), 30)] == [2]


def test_no_groups() -> None:
    """Of no groups, all fit."""
    assert newest_that_fit([], 0) == ()


def test_what_groups_cost_with_all_that_are_newer() -> None:
    """The newest costs what it costs as the last, each other one as one that is followed."""
    assert suffix_costs(groups(10, 21, 4)) == {2: 3, 1: 24, 0: 34}
    assert suffix_costs([]) == {}


def test_cleared_results_cost_less() -> None:
    """Each result is cleared once, and only one that there is."""
    group = Group(index=0, tokens=50, tokens_last=49, savings={"a": 20, "b": 5})

    cleared = group.without_results(("a", "x"))

    assert (cleared.tokens, cleared.tokens_last) == (30, 29)
    assert cleared.cleared == {"a"}
    assert cleared.without_results(("a",)) == cleared
    assert cleared.without_results(("b",)) == group.without_results(("b", "a"))


def test_one_call_is_enough_to_call_tools() -> None:
    """A turn has messages that call nothing as well."""
    human = Message(id="u", role=Role.HUMAN, content="hi")
    called = Message(id="a", role=Role.AI, content="", tool_calls=(ToolCall(id="c", name="f"),))

    assert Group(index=0, tokens=1, tokens_last=1, messages=(human, called)).calls_tools
    assert not Group(index=0, tokens=1, tokens_last=1, messages=(human,)).calls_tools


LARGE = Group(index=0, tokens=101, tokens_last=100, savings={"a": 30, "b": 40, "c": 20})


@pytest.mark.parametrize("room", [100, 1_000])
def test_a_group_that_fits_is_scored_as_it_is(room: int) -> None:
    """To the token."""
    assert LARGE.limited_to(room) is LARGE


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
    weighed = LARGE.limited_to(room)

    assert (weighed.tokens, weighed.tokens_last, weighed.excess) == (room, room, 100 - room)
    assert weighed.savings == savings


def test_nothing_scores_higher_where_nothing_was_kept() -> None:
    """An item scores less than others only if these were kept, and none that scores less."""
    assert explain_ranking([2, 0, 1], (), ()) == dict.fromkeys(range(3), "no_room")
    assert explain_ranking([2, 0, 1], {0}, ()) == {2: "no_room", 1: "score"}
    assert explain_ranking([2, 0, 1], {2}, {1}) == {0: "score", 1: "no_room"}
