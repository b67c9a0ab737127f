"""Clear the results of older tool calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from formatters.model import Role
from service.budget.groups import Fit, Group, Strategy, check_count, cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultClearing(Strategy):
    """If the budget is exceeded, clear all tool results except the newest ``keep_recent_n``.

    No message is dropped and no call loses its result: the text is replaced, the id stays. If that
    isn't enough, another strategy has to choose from what is left.
    """

    name: str = "tool_result_clearing"
    reads_all: bool = False
    keep_recent_n: int = 3

    def __post_init__(self) -> None:
        check_count("keep_recent_n", self.keep_recent_n)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return all groups; if they exceed the budget, with older results cleared."""
        if cost(groups) <= budget and not any(group.excess for group in groups):
            return Fit(kept=tuple(groups))
        results = [m.id for group in groups for m in group.messages if m.role is Role.TOOL]
        old = set(results[: max(len(results) - self.keep_recent_n, 0)])
        kept = tuple(group.without_results(old.intersection(group.savings)) for group in groups)
        return Fit(kept=kept, over_budget=cost(kept) > budget)
