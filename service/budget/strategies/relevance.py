"""Keep the newest turns, and of the older ones those most relevant to the question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from formatters.model import Passage, Ranker, Role
from service.budget.groups import Fit, Group, GroupDecision, StableBudget, cost, newest_that_fit
from service.budget.strategies.stable_window import chunked_window

#: The share of the tokens for history that the newest human message and its answers may use.
WHOLE_TURN_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Keep the newest groups within a share of the tokens, then others by their score.

    In the service, `service.budget.fit_recall` uses it for more than a choice among groups: there
    the newest turns are shown as usual, and rows of older ones in a block of their own. With
    groups alone, as in process or in a list of strategies, it ranks these by the newest human
    message among them, and they keep their order. Without a ranker it keeps the newest.
    """

    name: str = "relevance"
    reads_all: bool = True
    #: The share of the tokens for history that goes to the newest groups first.
    recent_share: float = 0.1
    #: The share of the tokens for history by which the newest groups are cut at once, so that they
    #: start where they did in the build before; 0 drops group by group.
    chunk_share: float = 0.0
    #: Scores passages; the core has none of its own.
    rank: Ranker | None = None
    #: What the builds of this history have in common; by default the budget of this build.
    stable_budget: StableBudget | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.recent_share <= 1:
            raise ValueError("recent_share has to lie between 0 and 1")
        if not 0 <= self.chunk_share <= 1:
            raise ValueError("chunk_share has to lie between 0 and 1")

    @property
    def stable_prefix(self) -> bool:
        """Return whether the newest groups start where they did in the build before."""
        return self.chunk_share > 0

    def with_stable_budget(self, stable_budget: StableBudget) -> "Relevance":
        """Return the strategy for one build."""
        return replace(self, stable_budget=stable_budget)

    def recent(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups within their share, and the newest at any cost.

        They reach back to a human message, if that takes no more than half of the budget.
        """
        if self.stable_prefix and (window := self._window(groups, budget)):
            return Fit(kept=tuple(window), stable_prefix=True)
        kept = newest_that_fit(groups, int(budget * self.recent_share)) or groups[-1:]
        turn = _newest_turn(groups)
        is_whole_turn = len(turn) > len(kept) and cost(turn) <= budget * WHOLE_TURN_SHARE
        return Fit(kept=tuple(turn if is_whole_turn else kept))

    def _window(self, groups: Sequence[Group], budget: int) -> Sequence[Group]:
        """Return the newest groups from the end of a chunk; none if the newest has no room."""
        tokens = self.stable_budget.tokens if self.stable_budget else budget
        limit = min(int(tokens * self.recent_share), budget)
        return chunked_window(groups, limit, int(tokens * self.chunk_share), whole=False)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, and of the others those with the highest scores that fit."""
        if not groups or cost(groups) <= budget or self.rank is None:
            return _make_fit(groups, newest_that_fit(groups, budget) or groups[-1:], {}, budget)
        scores = _score(groups, self.rank)
        pinned = [group for group in groups if group.pinned]
        recent = self.recent(groups, budget - cost(pinned)).kept
        kept = {group.index for group in (*pinned, *recent)}
        used = sum(_largest_cost(group) for group in groups if group.index in kept)
        # of groups with equal scores the newer comes first
        for group in sorted(groups, key=lambda g: (scores[g.index], g.index), reverse=True):
            if group.index not in kept and used + _largest_cost(group) <= budget:
                kept.add(group.index)
                used += _largest_cost(group)
        return _make_fit(groups, [g for g in groups if g.index in kept], scores, budget)


def recalls(strategy: object) -> TypeGuard[Relevance]:
    """Return whether rows of older turns are recalled for a strategy."""
    return isinstance(strategy, Relevance) and strategy.rank is not None


def _newest_turn(groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups from the last one with a human message on; all if there is none."""
    for index in reversed(range(len(groups))):
        if any(message.role is Role.HUMAN for message in groups[index].messages):
            return groups[index:]
    return groups


def _score(groups: Sequence[Group], rank: Ranker) -> dict[int, float]:
    """Score groups by the newest human message, or else by the newest group, by their index."""
    passages = [_passage(group) for group in groups]
    humans = (m.content for g in reversed(groups) for m in g.messages if m.role is Role.HUMAN)
    scores = rank(next(humans, passages[-1].text), passages, None)
    return {group.index: score for group, score in zip(groups, scores, strict=True)}


def _passage(group: Group) -> Passage:
    text = "\n".join(message.content for message in group.messages)
    first = group.messages[0] if group.messages else None
    return Passage(text, first.role if first else Role.OTHER, first.timestamp if first else None)


def _largest_cost(group: Group) -> int:
    """Return what a group costs at most in any position."""
    return max(group.tokens, group.tokens_last)


def _make_fit(
    groups: Sequence[Group], kept: Sequence[Group], scores: dict[int, float], budget: int
) -> Fit:
    """Return the fit, with the scores of all groups if there are any."""
    if scores:
        decisions = {n: GroupDecision("score", round(score, 2)) for n, score in scores.items()}
    else:
        indices = {group.index for group in kept}
        dropped = (group.index for group in groups if group.index not in indices)
        decisions = dict.fromkeys(dropped, GroupDecision("older"))
    return Fit(kept=tuple(kept), decisions=decisions, over_budget=cost(kept) > budget)
