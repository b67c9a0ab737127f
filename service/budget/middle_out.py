"""Drop groups from the middle."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, chosen, newest_that_fit


@dataclass(frozen=True, slots=True)
class MiddleOut:
    """Keep the first group and the newest one whatever they cost, and fill up from the end."""

    name: str = "middle_out"
    reads_all: bool = True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the first group and the newest ones that fit beside it.

        With no budget at all only the newest group is kept, as in the source system.
        """
        if len(groups) < 3:
            return chosen(groups, groups, budget, "middle")
        if budget <= 0:
            return chosen(groups, groups[-1:], budget, "middle")
        first, rest = groups[0], groups[1:]
        newest = newest_that_fit(rest, budget - first.tokens) or rest[-1:]
        return chosen(groups, (first, *newest), budget, "middle")
