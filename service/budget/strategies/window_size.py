"""Keep a window of the newest messages, under the names of two source systems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, make_fit, suffix_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize:
    """Keep the newest groups that have at most ``max_messages`` messages together."""

    name: str = "window_size"
    reads_all: bool = False
    #: In `[SHARED_MEMORY]` these are printed rows.
    max_messages: int = 20

    def __post_init__(self) -> None:
        if self.max_messages < 1:
            raise ValueError("max_messages has to be at least 1")

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, up to the first that doesn't fit whole."""
        return make_fit(groups, newest_messages(groups, self.max_messages), budget, "window")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each group in the window together with all newer ones."""
        return suffix_costs(newest_messages(groups, self.max_messages))


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
        """Return the newest groups, up to the first that doesn't fit whole."""
        return make_fit(groups, newest_messages(groups, self.window_size), budget, "window")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each group in the window together with all newer ones."""
        return suffix_costs(newest_messages(groups, self.window_size))


def newest_messages(groups: Sequence[Group], limit: int) -> list[Group]:
    """Return the newest groups with at most ``limit`` messages, without a gap.

    Pinned groups take precedence, however large they are, unless the limit is 0.
    """
    kept = {group.index for group in groups if group.pinned and limit > 0}
    room = limit - sum(group.size for group in groups if group.index in kept)
    for group in reversed(groups):
        if group.index in kept:
            continue
        room -= group.size
        if room < 0:
            break
        kept.add(group.index)
    return [group for group in groups if group.index in kept]
