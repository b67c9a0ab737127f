"""Drop groups from the middle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, make_fit, newest_that_fit, suffix_costs


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
            return make_fit(groups, groups, budget, "middle")
        if budget <= 0:
            return make_fit(groups, groups[-1:], budget, "middle")
        first, rest = groups[0], groups[1:]
        # one that exceeds the budget by itself will be cut, and the newest ones have its room
        room = budget if first.excess else budget - first.tokens
        newest = newest_that_fit(rest, room) or rest[-1:]
        return make_fit(groups, (first, *newest), budget, "middle")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return what each group costs with the first and all that are newer."""
        if len(groups) < 3:
            return suffix_costs(groups)
        first, newest = groups[0], groups[-1]
        newer = suffix_costs(groups[1:])
        return {
            **{index: first.tokens + tokens for index, tokens in newer.items()},
            first.index: first.tokens + newest.tokens_last,
            newest.index: newest.tokens_last,
        }
