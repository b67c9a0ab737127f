"""Drop groups from the middle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, Strategy, make_fit, newest_that_fit, suffix_costs


@dataclass(frozen=True, slots=True)
class MiddleOut(Strategy):
    """Keep the first and the newest group, even beyond the budget, and fill up from the end."""

    name: str = "middle_out"
    reads_all: bool = True

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the first group and the newest ones that fit with it.

        With no budget at all only the newest group is kept, as in the source system.
        """
        if len(groups) < 3:
            return make_fit(groups, groups, budget, "middle")
        if budget <= 0:
            return make_fit(groups, groups[-1:], budget, "middle")
        first, rest = groups[0], groups[1:]
        # a first group that exceeds the budget by itself will be cut, so the newest get its room
        room = budget if first.excess else budget - first.tokens
        newest = newest_that_fit(rest, room) or rest[-1:]
        return make_fit(groups, (first, *newest), budget, "middle")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each group together with the first and all newer ones."""
        if len(groups) < 3:
            return suffix_costs(groups)
        first, newest = groups[0], groups[-1]
        newer = suffix_costs(groups[1:])
        return {
            **{index: first.tokens + tokens for index, tokens in newer.items()},
            first.index: first.tokens + newest.tokens_last,
            newest.index: newest.tokens_last,
        }
