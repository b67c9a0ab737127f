import pytest

from formatters.model import Message, Role
from service.budget.groups import Group
from service.budget.strategies.tool_result_clearing import ToolResultClearing


def group(index: int, *results: str) -> Group:
    """Return a call with these results, each of which takes 10 tokens, 4 of them when cleared."""
    messages = (
        Message(id=f"a{index}", role=Role.AI, content=""),
        *(Message(id=name, role=Role.TOOL, content="") for name in results),
    )
    tokens = 10 * len(messages)
    savings = dict.fromkeys(results, 6)
    return Group(index=index, tokens=tokens, tokens_last=tokens, messages=messages, savings=savings)


GROUPS = [group(0, "r0"), group(1, "r1", "r2"), group(2, "r3"), group(3, "r4")]


@pytest.mark.parametrize(
    ("keep", "cleared"),
    [
        (0, {"r0", "r1", "r2", "r3", "r4"}),
        (2, {"r0", "r1", "r2"}),
        (3, {"r0", "r1"}),
        (5, set()),
        (9, set()),
    ],
)
def test_all_but_the_newest_results_are_cleared(keep: int, cleared: set[str]) -> None:
    """Results are counted over all groups; no group goes."""
    fit = ToolResultClearing(keep_recent_n=keep).fit(GROUPS, 10)

    assert [each.index for each in fit.kept] == [0, 1, 2, 3]
    assert {name for each in fit.kept for name in each.cleared} == cleared
    assert sum(each.tokens for each in fit.kept) == 90 - 6 * len(cleared)
    assert fit.over_budget


def test_what_fits_is_left_alone() -> None:
    """Within the budget nothing is cleared."""
    assert ToolResultClearing().fit(GROUPS, 90).kept == tuple(GROUPS)
    assert not ToolResultClearing().fit(GROUPS, 90).over_budget
    assert not ToolResultClearing(keep_recent_n=1).fit(GROUPS, 66).over_budget


def test_a_number_below_nothing_is_refused() -> None:
    """Fewer than no results can't be kept."""
    with pytest.raises(ValueError, match="at least 0, not -1"):
        ToolResultClearing(keep_recent_n=-1)
