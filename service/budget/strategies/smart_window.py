"""Keep the newest messages, and optionally the first ones and those with tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.budget.groups import Fit, Group, make_fit, suffix_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartWindow:
    """Keep ``max_messages`` messages: the first ``preserve_initial``, then the newest.

    A group that doesn't fit whole is skipped, and an older one may be kept instead.
    """

    name: str = "smart_window"
    reads_all: bool = True
    #: In `[SHARED_MEMORY]` these are printed rows.
    max_messages: int = 20
    preserve_initial: int = 0
    #: Take groups with tool calls before all others.
    prioritize_tools: bool = False

    def __post_init__(self) -> None:
        if self.max_messages < 1:
            raise ValueError("max_messages has to be at least 1")
        if not 0 <= self.preserve_initial < self.max_messages:
            raise ValueError("preserve_initial has to be at least 0 and less than max_messages")

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the chosen groups in their order."""
        return make_fit(groups, self._choose(groups), budget, "window")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each chosen group together with all newer ones."""
        return suffix_costs(self._choose(groups))

    def _choose(self, groups: Sequence[Group]) -> list[Group]:
        """Return pinned groups, then the first, then the others that have room, in order."""
        taken = {group.index for group in groups if group.pinned}
        room = self.max_messages - sum(group.size for group in groups if group.pinned)
        first = self._first(groups)
        for group in (*first, *self._by_precedence(groups[len(first) :])):
            if group.size <= room and group.index not in taken:
                taken.add(group.index)
                room -= group.size
        return [group for group in groups if group.index in taken]

    def _first(self, groups: Sequence[Group]) -> Sequence[Group]:
        """Return the oldest groups with at most ``preserve_initial`` messages."""
        room = self.preserve_initial
        for count, group in enumerate(groups):
            room -= group.size
            if room < 0:
                return groups[:count]
        return groups

    def _by_precedence(self, groups: Sequence[Group]) -> list[Group]:
        """Order groups by precedence."""
        newest = list(reversed(groups))
        if not self.prioritize_tools:
            return newest
        return sorted(newest, key=lambda group: not group.calls_tools)
