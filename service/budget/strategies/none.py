"""Keep every group."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, Strategy, cost


@dataclass(frozen=True, slots=True)
class KeepAll(Strategy):
    """Drop nothing. A context that doesn't fit is refused; in `fit` the oldest groups go."""

    name: str = "none"
    reads_all: bool = True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return all groups."""
        return Fit(kept=tuple(groups), over_budget=cost(groups) > budget)
