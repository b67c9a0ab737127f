"""Drop the oldest groups first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, Strategy, make_fit, newest_that_fit, suffix_costs


@dataclass(frozen=True, slots=True)
class OldestFirst(Strategy):
    """Keep the newest groups without a gap; the newest one even if it exceeds the budget."""

    name: str = "oldest_first"
    reads_all: bool = False

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that fit."""
        kept = newest_that_fit(groups, budget) or groups[-1:]
        return make_fit(groups, kept, budget, "older")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each group together with all newer ones."""
        return suffix_costs(groups)
