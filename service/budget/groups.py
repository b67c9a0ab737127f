"""Groups, which a strategy keeps or drops whole, and what strategies are and may offer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeGuard

from formatters.model import Message, SummaryForm


class Group(NamedTuple):
    """Messages that stay together, such as a turn, or a tool call with its results.

    A named tuple, since every turn of a history is one: it is created in a third of the time.
    """

    #: Its position among the groups, 0 for the oldest.
    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs
    #: Tokens where another group follows, and as the last of its block.
    tokens: int
    tokens_last: int
    messages: tuple[Message, ...] = ()
    #: Messages, as limits count them: printed rows, or native messages.
    size: int = 1
    #: Tokens saved by clearing a tool result, by the id of its message; only where it saves any.
    savings: Mapping[str, int] = MappingProxyType({})
    #: Tokens that it needs beyond the budget, if its cost was limited to the budget.
    excess: int = 0
    #: The ids of the messages whose tool results are cleared.
    cleared: frozenset[str] = frozenset()
    #: True if windows and `importance` keep it before all others. In the service no history has
    #: such a group: there the newest message of the user is a block of its own.
    pinned: bool = False
    #: Tokens of all the history before it, as counted by its store; None if unknown.
    start: int | None = None

    def without_results(self, ids: Collection[str]) -> "Group":
        """Return the group with these of its tool results cleared."""
        if not ids:
            return self
        ids = {id_ for id_ in ids if id_ in self.savings and id_ not in self.cleared}
        saved = sum(self.savings[id_] for id_ in ids)
        return self._replace(
            tokens=self.tokens - saved,
            tokens_last=self.tokens_last - saved,
            cleared=self.cleared | ids,
        )

    def limited_to(self, room: int) -> "Group":
        """Return the group with a cost of at most ``room`` tokens, as if it were shortened to it.

        Clearing results must first make up for the excess, so the first ones save less.
        """
        excess = self.tokens_last - room
        if excess <= 0:
            return self
        remaining = excess
        savings: dict[str, int] = {}
        for id_, saved in self.savings.items():
            absorbed = min(remaining, saved)
            savings[id_] = saved - absorbed
            remaining -= absorbed
        return self._replace(tokens=room, tokens_last=room, savings=savings, excess=excess)

    @property
    def calls_tools(self) -> bool:
        """Return whether it contains a tool call."""
        return any(message.tool_calls for message in self.messages)


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """Why a strategy drops a group, or how it scores one."""

    #: A code of `service.budget.decisions.REASONS`, or one of the strategy's own.
    reason: str
    score: float | None = None


class SummaryCandidate(NamedTuple):
    """Stored summaries that can replace dropped groups, and the cost of showing them."""

    tokens: int
    form: SummaryForm

    def covers(self, group: Group) -> bool:
        """Return whether every message of a group is covered by one of the summaries."""
        return self.form.covers_all(message.id for message in group.messages)


#: Describe groups in one sentence.
Summarize = Callable[[Sequence[Group]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The choice of a strategy."""

    #: In their order.
    kept: tuple[Group, ...]
    #: By the index of the group.
    decisions: Mapping[int, GroupDecision] = field(default_factory=dict)
    #: True if the groups that the strategy protects exceed the budget by themselves.
    over_budget: bool = False
    #: Describes the dropped groups, if a sentence is to replace them.
    summary: Summarize | None = None
    #: The stored summaries to show; they take precedence over a sentence.
    stored_summary: SummaryCandidate | None = None
    #: True if summaries should be made for later builds.
    wanted_summary: bool = False
    #: True if most of the builds that follow will start at the same group.
    stable_prefix: bool = False


@dataclass(frozen=True, slots=True)
class StableBudget:
    """The part of a budget that is the same in every build of a history, whatever the input."""

    #: Tokens that history may use besides the blocks that don't change.
    tokens: int
    #: True if the groups are the whole history, with nothing older.
    whole: bool


class Strategy(Protocol):
    """Chooses groups for a budget. Pure: the same groups and budget give the same choice."""

    @property
    def name(self) -> str:
        """The name in requests and configuration."""
        ...

    @property
    def reads_all(self) -> bool:
        """Whether it chooses from all of the history, not only from its newest part."""
        ...

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the groups that fit into ``budget`` tokens, in their order."""
        ...


class ReportsMinimum(Protocol):
    """An optional ability of strategies: report the budget that would have kept a group."""

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the smallest budget at which each group would be kept, by its index.

        Groups without one are omitted: those that no budget brings back, and those that a larger
        budget may drop again.
        """
        ...


class UsesSummaries(Protocol):
    """An optional ability of strategies: choose stored summaries together with groups."""

    @property
    def uses_summaries(self) -> bool:
        """Whether stored summaries should be read for it."""
        ...

    def fit_with_summaries(
        self, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> Fit:
        """Return what fits, with at most one of the ``candidates``, the largest of which is first.

        Each candidate has fewer summaries than the one before it.
        """
        ...


class HasStablePrefix(Protocol):
    """An optional ability of strategies: start at the same group as in the build before."""

    @property
    def stable_prefix(self) -> bool:
        """Whether its parameters make it do so."""
        ...

    def with_stable_budget(self, stable_budget: StableBudget) -> Strategy:
        """Return the strategy for one build, with the budget that all builds have in common."""
        ...


def reports_minimum(strategy: object) -> TypeGuard[ReportsMinimum]:
    """Return whether a strategy reports the budget that would have kept a group."""
    return getattr(strategy, "least", None) is not None


def uses_summaries(strategy: object) -> TypeGuard[UsesSummaries]:
    """Return whether stored summaries should be read for a strategy."""
    return getattr(strategy, "uses_summaries", False) is True


def has_stable_prefix(strategy: object) -> TypeGuard[HasStablePrefix]:
    """Return whether a strategy starts at the same group as in the build before."""
    return getattr(strategy, "stable_prefix", False) is True


def apply_strategy(
    strategy: Strategy, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
) -> Fit:
    """Return a strategy's choice, with stored summaries if there are any and it uses them."""
    if candidates and uses_summaries(strategy):
        return strategy.fit_with_summaries(groups, budget, candidates)
    return strategy.fit(groups, budget)


def cost(groups: Sequence[Group]) -> int:
    """Return the tokens of groups that follow each other to the end of a block."""
    if not groups:
        return 0
    return sum(group.tokens for group in groups[:-1]) + groups[-1].tokens_last


def make_fit(groups: Sequence[Group], kept: Sequence[Group], budget: int, reason: str) -> Fit:
    """Return the fit that keeps some of the groups and drops the others for one reason."""
    indices = {group.index for group in kept}
    dropped = GroupDecision(reason)
    return Fit(
        kept=tuple(kept),
        decisions={group.index: dropped for group in groups if group.index not in indices},
        over_budget=cost(kept) > budget,
    )


def suffix_costs(groups: Sequence[Group]) -> dict[int, int]:
    """Return the cost of each group together with all newer ones, by its index."""
    costs: dict[int, int] = {}
    newer = 0
    for group in reversed(groups):
        newer += group.tokens if costs else group.tokens_last
        costs[group.index] = newer
    return costs


def newest_that_fit(groups: Sequence[Group], budget: int) -> tuple[Group, ...]:
    """Return as many of the newest groups as fit, without a gap.

    It stops at the first group that doesn't fit, so nothing is returned if the newest doesn't.
    """
    used = 0
    for count, group in enumerate(reversed(groups)):
        used += group.tokens if count else group.tokens_last
        if used > budget:
            return tuple(groups[len(groups) - count :])
    return tuple(groups)
