"""Groups: what a strategy keeps or drops whole."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

from formatters.model import Message, Ranker, SummaryForm


class Group(NamedTuple):
    """Messages that stay together, such as a turn, or a tool call with its results.

    A named tuple, as there is one for every turn of a history: it is made in a third of the time.
    """

    #: Its place among the groups, 0 for the oldest.
    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs
    #: Tokens where another group follows, and as the last of its block.
    tokens: int
    tokens_last: int
    messages: tuple[Message, ...] = ()
    #: Messages, as limits count them: printed rows, or native messages.
    size: int = 1
    #: Tokens that clearing a tool result saves, by the id of its message; only what saves any.
    savings: Mapping[str, int] = MappingProxyType({})
    #: Tokens that it has beyond the budget, where it is weighed as if it filled that.
    excess: int = 0
    #: The ids of the messages whose tool results are cleared.
    cleared: frozenset[str] = frozenset()
    #: True where windows and `importance` take it before all others; no history has such a group
    #: in the service, where the newest message of the user is a block of its own.
    pinned: bool = False
    #: Tokens of all the history before it, as its store counts them; None where nobody knows.
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

    @property
    def calls_tools(self) -> bool:
        """Tell whether a tool is called in it."""
        return any(message.tool_calls for message in self.messages)


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """What a strategy says of a group that it drops or scores."""

    #: A code of `service.budget.decisions.REASONS`.
    reason: str
    score: float | None = None


class SummaryCandidate(NamedTuple):
    """Summaries that may stand for groups that are left out, and what showing them costs."""

    tokens: int
    form: SummaryForm

    def covers(self, group: Group) -> bool:
        """Tell whether each message of a group is in one of the summaries."""
        return self.form.covers_all(message.id for message in group.messages)


#: Say in a sentence what was in groups.
Summarize = Callable[[Sequence[Group]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a strategy chose."""

    #: In their order.
    kept: tuple[Group, ...]
    #: By the index of the group.
    decisions: Mapping[int, GroupDecision] = field(default_factory=dict)
    #: True where the groups that the strategy protects exceed the budget by themselves.
    over_budget: bool = False
    #: Says what was in the groups that are left out, where a sentence is to stand for them.
    summary: Summarize | None = None
    #: The stored summaries that are shown; they go before a sentence.
    stored_summary: SummaryCandidate | None = None
    #: True where summaries should be made, for the builds to come.
    wanted_summary: bool = False
    #: True where it begins at the same group in most of the builds that follow.
    stable_prefix: bool = False


@dataclass(frozen=True, slots=True)
class StableBudget:
    """What stays from build to build of one history, whatever is asked."""

    #: Tokens that history may have beside the blocks that stay.
    tokens: int
    #: Whether nothing is older than what a strategy is given.
    whole: bool


class Strategy(Protocol):
    """Choose groups for a budget. Pure: the same groups and budget give the same choice."""

    @property
    def name(self) -> str:
        """The name in requests and configuration."""
        ...

    @property
    def reads_all(self) -> bool:
        """Whether it chooses from all of the history, not just from its newest part."""
        ...

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the groups that fit into so many tokens, in their order."""
        ...


class ReportsMinimum(Protocol):
    """What a strategy may do besides: tell how much more budget would have kept a group."""

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:
        """Return the least budget at which each group would be kept, by its index.

        Groups for which that is not defined are left out: those that no budget brings back, and
        those that more tokens may also push out.
        """
        ...


@runtime_checkable
class UsesSummaries(Protocol):
    """What a strategy may do besides: choose groups and the summaries that stand for others."""

    @property
    def uses_summaries(self) -> bool:
        """Whether stored summaries are worth reading for it."""
        ...

    def fit_with_summaries(
        self, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
    ) -> Fit:
        """Return what fits; of the ``stand_ins``, each with fewer summaries, one at most."""
        ...


class HasStablePrefix(Protocol):
    """What a strategy may do besides: begin where it did in the build before."""

    @property
    def stable_prefix(self) -> bool:
        """Whether it does, as its parameters are."""
        ...

    def with_stable_budget(self, stable_budget: StableBudget) -> Strategy:
        """Return the strategy for one build, that knows what stays from build to build."""
        ...


class Recalls(HasStablePrefix, Protocol):
    """What a strategy may do besides: have rows of older turns recalled beside the newest."""

    @property
    def rank(self) -> Ranker | None:
        """What scores rows; without it none is recalled."""
        ...

    def recent(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups that are shown in their place, whatever the question."""
        ...


def recalls(strategy: object) -> TypeGuard[Recalls]:
    """Tell whether rows of older turns are recalled for a strategy."""
    return getattr(strategy, "rank", None) is not None and hasattr(strategy, "recent")


def reports_minimum(strategy: object) -> TypeGuard[ReportsMinimum]:
    """Tell whether a strategy says how much more budget would have kept a group."""
    return getattr(strategy, "least", None) is not None


def uses_summaries(strategy: Strategy) -> bool:
    """Tell whether stored summaries are worth reading for a strategy."""
    # a tenth of what it takes to look for all of the protocol, and builds ask several times
    return getattr(strategy, "uses_summaries", False) is True


def has_stable_prefix(strategy: object) -> TypeGuard[HasStablePrefix]:
    """Tell whether a strategy begins where it did in the build before."""
    return getattr(strategy, "stable_prefix", False) is True


def apply_strategy(
    strategy: Strategy, groups: Sequence[Group], budget: int, candidates: Sequence[SummaryCandidate]
) -> Fit:
    """Let a strategy choose, with the summaries there are where it uses any."""
    if candidates and isinstance(strategy, UsesSummaries):
        return strategy.fit_with_summaries(groups, budget, candidates)
    return strategy.fit(groups, budget)


def cost(groups: Sequence[Group]) -> int:
    """Return the tokens of groups that stand one after the other."""
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
    """Return what each group costs together with all that are newer, by its index."""
    costs: dict[int, int] = {}
    newer = 0
    for group in reversed(groups):
        costs[group.index] = newer + (group.tokens if costs else group.tokens_last)
        newer = costs[group.index]
    return costs


def newest_that_fit(groups: Sequence[Group], budget: int) -> tuple[Group, ...]:
    """Return the longest run of newest groups within the budget; none where the newest exceeds it.

    The run has no gaps: it ends at the first group that does not fit.
    """
    used = 0
    for taken, group in enumerate(reversed(groups)):
        used += group.tokens if taken else group.tokens_last
        if used > budget:
            return tuple(groups[len(groups) - taken :])
    return tuple(groups)
