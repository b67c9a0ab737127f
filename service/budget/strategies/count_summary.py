"""Keep the newest messages, and count the others in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from formatters.model import Role
from service.budget.groups import Fit, Group, cost, make_fit
from service.budget.strategies.window_size import newest_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSummary:
    """Over the budget, keep the newest groups of ``max_items`` messages, and count the others."""

    name: str = "count_summary"
    reads_all: bool = True
    #: In `[SHARED_MEMORY]` these are printed rows; 0 keeps none.
    max_items: int = 10

    def __post_init__(self) -> None:
        if self.max_items < 0:
            raise ValueError("max_items can't be less than 0")

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, and the function that describes the others."""
        if cost(groups) <= budget:
            return Fit(kept=tuple(groups))
        kept = newest_messages(groups, self.max_items)
        return replace(make_fit(groups, kept, budget, "window"), summary=count_sentence)


def count_sentence(groups: Sequence[Group]) -> str:
    """Count turns and tool calls, in the words of the source document (REPLOID's)."""
    messages = [message for group in groups for message in group.messages]
    users = sum(message.role is Role.HUMAN for message in messages)
    models = sum(message.role is Role.AI for message in messages)
    calls = sum(len(message.tool_calls) for message in messages)
    return (
        f"Previous {users + models} turns: {users} user messages, {models} model responses, "
        f"{calls} tool calls"
    )
