"""Keep a window of the newest messages, under another source system's name and parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, chosen, suffix_costs
from service.budget.strategies.window_size import newest_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Keep the newest groups that have at most ``window_size`` messages together."""

    name: str = "sliding_window"
    reads_all: bool = False
    #: In `[SHARED_MEMORY]` these are printed rows; 0 keeps none.
    window_size: int = 20

    def __post_init__(self) -> None:
        if self.window_size < 0:
            raise ValueError("window_size can't be less than 0")

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, up to the first that does not go in whole."""
        return chosen(groups, newest_messages(groups, self.window_size), budget, "window")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return what each group in the window costs with all that are newer."""
        return suffix_costs(newest_messages(groups, self.window_size))
