import pytest

from service.budget.groups import Group
from service.budget.strategies.none import KeepAll


@pytest.mark.parametrize(("budget", "over"), [(20, False), (19, True), (0, True)])
def test_everything_is_kept(budget: int, *, over: bool) -> None:
    """All groups stay, and the strategy says whether they fit."""
    groups = [Group(index=n, tokens=10, tokens_last=10) for n in range(2)]

    fit = KeepAll().fit(groups, budget)

    assert fit.kept == tuple(groups)
    assert fit.over_budget is over
    assert fit.decisions == {}
