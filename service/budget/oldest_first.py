"""Drop the oldest groups first."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, chosen, newest_that_fit


@dataclass(frozen=True, slots=True)
class OldestFirst:
    """Keep the newest groups without a gap, and the newest one whatever it costs."""

    name: str = "oldest_first"
    reads_all: bool = False

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that fit."""
        kept = newest_that_fit(groups, budget) or groups[-1:]
        return chosen(groups, kept, budget, "older")
