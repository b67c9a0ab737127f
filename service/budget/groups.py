"""Groups, which a strategy keeps or drops whole, and what strategies are and may offer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from formatters.model import Message, SummaryForm
from service.errors import ConfigError, shown


class Group(NamedTuple):
    """Messages that stay together, such as a turn, or a tool call with its results.

    A named tuple, since every turn of a history is one: it is created in a third of the time.
    """

    #: Its position among the groups, 0 for the oldest.
    index: int  # type: ignore[assignment] # hides tuple.index, which is unused
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
        """Return the group with the tool results of these ids cleared."""
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
        """Return the group as if it were shortened to at most ``room`` tokens.

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


class GroupDecision(NamedTuple):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What `fit` of a strategy returns: the groups that are kept, and the decisions."""

    #: In their order.
    kept: tuple[Group, ...]
    #: By the index of the group.
    decisions: Mapping[int, GroupDecision] = field(default_factory=dict)
    #: True if the groups that the strategy protects exceed the budget by themselves.
    over_budget: bool = False
    #: Describes the dropped groups, if a sentence is to replace them.
    summary: Callable[[Sequence[Group]], str] | None = None
    #: The stored summaries to show; they take precedence over a sentence.
    stored_summary: SummaryCandidate | None = None
    #: True if summaries should be made for later builds.
    wanted_summary: bool = False
    #: True if most of the builds that follow will start at the same group.
    stable_prefix: bool = False


@dataclass(frozen=True, slots=True)
class StableBudget:
    """The part of a budget that is the same in every build of a history, for any input."""

    #: Tokens that history may use besides the blocks that don't change.
    tokens: int
    #: True if the groups are the whole history, with nothing older.
    whole: bool


class Strategy(ABC):
    """Chooses groups for a budget. Pure: the same groups and budget give the same choice."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in requests and configuration."""

    @property
    @abstractmethod
    def reads_all(self) -> bool:
        """Whether it chooses from all of the history, not only from its newest part."""

    @property
    def uses_summaries(self) -> bool:
        """Whether it uses stored summaries."""
        return False

    @property
    def stable_prefix(self) -> bool:
        """Whether it keeps the same first group from build to build."""
        return False

    @property
    def recalls(self) -> bool:
        """Whether it chooses single rows of older turns, for `[RECALLED]`."""
        return False

    @abstractmethod
    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the groups that fit into ``budget`` tokens, in their order."""

    def fit_with_summaries(
        self,
        groups: Sequence[Group],
        budget: int,
        candidates: Sequence[SummaryCandidate],  # noqa: ARG002 - of no use to most
    ) -> Fit:
        """Return what fits, with the first of the ``candidates`` for which there is room, if any.

        Candidates are passed largest first: each has fewer summaries than the one before it.
        """
        return self.fit(groups, budget)

    def with_stable_budget(self, stable_budget: StableBudget) -> "Strategy":  # noqa: ARG002 - of no use to most
        """Return the strategy for one build, with the budget that all builds have in common."""
        return self

    def least(self, groups: Sequence[Group]) -> Mapping[int, int]:  # noqa: ARG002 - few have any
        """Return the smallest budget at which each group would be kept, by its index.

        Groups without one are omitted: those that no budget brings back, and those that a larger
        budget may drop again.
        """
        return {}


def cost(groups: Sequence[Group]) -> int:
    """Return the tokens of groups that follow each other to the end of a block."""
    if not groups:
        return 0
    return sum([group.tokens for group in groups[:-1]]) + groups[-1].tokens_last


def make_fit(groups: Sequence[Group], kept: Sequence[Group], budget: int, reason: str) -> Fit:
    """Return the fit that keeps some of the groups and drops the others for one reason."""
    indices = {group.index for group in kept}
    dropped = [group.index for group in groups if group.index not in indices]
    return Fit(
        kept=tuple(kept),
        decisions=dict.fromkeys(dropped, GroupDecision(reason)),
        over_budget=cost(kept) > budget,
    )


def checked(strategy: Strategy, fit: object) -> Fit:
    """Return what a strategy returned, with what it keeps in order and once.

    Raises `ConfigError` if that is no `Fit`, as a strategy of another package may return.
    """
    if not isinstance(fit, Fit):
        name, found = getattr(strategy, "name", type(strategy).__name__), type(fit).__name__
        raise ConfigError(f"the strategy {name} has to return what make_fit makes, not {found}")
    kept = {group.index: group for group in fit.kept}
    return replace(fit, kept=tuple([kept[index] for index in sorted(kept)]))


def fit_by_score(
    groups: Sequence[Group], scores: Mapping[int, float], protected: Sequence[Group], budget: int
) -> Fit:
    """Return the fit that keeps ``protected``, and of the others the best by score that fit.

    ``protected`` includes the newest group, and has no scores among the decisions, since none
    decides on it. Of groups with equal scores the newer comes first.
    """
    kept = {group.index for group in protected}
    others = [group for group in groups if group.index not in kept]
    ranked = sorted(others, key=lambda group: (scores[group.index], group.index), reverse=True)
    room = remaining = budget - cost(protected)
    for group in ranked:
        if group.tokens <= remaining:
            kept.add(group.index)
            remaining -= group.tokens
    too_long = {group.index for group in ranked if group.tokens > room}
    reasons = explain_ranking([group.index for group in ranked], kept, too_long)
    return Fit(
        kept=tuple(group for group in groups if group.index in kept),
        decisions={
            group.index: GroupDecision(
                reasons.get(group.index, "score"), round(scores[group.index], 2)
            )
            for group in others
        },
        over_budget=remaining < 0,
    )


def explain_ranking(
    ranked: Sequence[int], selected: Container[int], too_long: Container[int]
) -> dict[int, str]:
    """Return the reason why each item of a ranking isn't among the ``selected``, by its index.

    ``ranked`` begins with the highest score. What is ``too_long`` doesn't fit even alone. The
    reason is ``score`` only if nothing with a lower score is selected in place of the item.
    """
    reasons: dict[int, str] = {}
    passed_over = not any(index in selected for index in ranked)
    for index in reversed(ranked):
        if index in selected:
            passed_over = True
        else:
            reasons[index] = "no_room" if passed_over or index in too_long else "score"
    return reasons


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


def check_count(name: str, value: object, least: int = 0) -> None:
    """Raise `ValueError` unless a parameter is a whole number of at least ``least``."""
    if type(value) is not int or value < least:  # nor a bool
        raise ValueError(f"{name} has to be a whole number of at least {least}, not {shown(value)}")


def check_share(name: str, value: object) -> None:
    """Raise `ValueError` unless a parameter is a number between 0 and 1."""
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise ValueError(f"{name} has to be a number between 0 and 1, not {shown(value)}")
