"""Keep a window of the newest messages; over the budget, count the others in a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from formatters.model import Role
from formatters.rows import counted
from service.budget.groups import Fit, Group, Strategy, check_count, cost, make_fit, suffix_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize(Strategy):
    """Keep the newest groups that have at most ``max_messages`` messages together."""

    name: str = "window_size"
    reads_all: bool = False
    #: In `[SHARED_MEMORY]` these are printed rows.
    max_messages: int = 20

    def __post_init__(self) -> None:
        check_count("max_messages", self.max_messages, least=1)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, up to the first that doesn't fit whole."""
        return make_fit(groups, newest_messages(groups, self.max_messages), budget, "window")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each group in the window together with all newer ones."""
        return suffix_costs(newest_messages(groups, self.max_messages))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow(Strategy):
    """Keep the newest groups that have at most ``window_size`` messages together."""

    name: str = "sliding_window"
    reads_all: bool = False
    #: In `[SHARED_MEMORY]` these are printed rows; 0 keeps none.
    window_size: int = 20

    def __post_init__(self) -> None:
        check_count("window_size", self.window_size)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, up to the first that doesn't fit whole."""
        return make_fit(groups, newest_messages(groups, self.window_size), budget, "window")

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the cost of each group in the window together with all newer ones."""
        return suffix_costs(newest_messages(groups, self.window_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartWindow(Strategy):
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
        check_count("max_messages", self.max_messages, least=1)
        check_count("preserve_initial", self.preserve_initial)
        if self.preserve_initial >= self.max_messages:
            raise ValueError("preserve_initial has to be less than max_messages")

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
        sizes = accumulate(group.size for group in groups)
        first = [g for g, size in zip(groups, sizes, strict=True) if size <= self.preserve_initial]
        others = list(reversed(groups[len(first) :]))
        if self.prioritize_tools:
            others.sort(key=lambda group: not group.calls_tools)
        for group in (*first, *others):
            if group.size <= room and group.index not in taken:
                taken.add(group.index)
                room -= group.size
        return [group for group in groups if group.index in taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSummary(Strategy):
    """Over the budget, keep the newest ``max_items`` messages, and count the others."""

    name: str = "count_summary"
    reads_all: bool = True
    #: In `[SHARED_MEMORY]` these are printed rows; 0 keeps none.
    max_items: int = 10

    def __post_init__(self) -> None:
        check_count("max_items", self.max_items)

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
    parts = {"user message": users, "model response": models, "tool call": calls}
    listed = ", ".join(counted(number, noun) for noun, number in parts.items())
    return f"Previous {counted(users + models, 'turn')}: {listed}"


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
