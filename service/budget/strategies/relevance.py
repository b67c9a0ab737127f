"""Keep the newest turns, and of the older ones what tells most about the question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from formatters.model import Passage, Ranker, Role
from service.budget.groups import Fit, Group, GroupDecision, StableBudget, cost, newest_that_fit
from service.budget.stable_prefix import chunked_window

#: Of the tokens for history, what the newest human message may take with all that answers it.
WHOLE_TURN: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Keep the newest groups within a share of the tokens, then others as they score.

    In the service it is more than a choice among groups: there the newest turns stand where they
    always do, and rows of older ones in a block of their own
    (`service.budget.fit_recall`). Where it
    has groups alone, as in process or in a list of strategies, it ranks those by the newest human
    message among them, and they keep their places. Without a ranker it keeps the newest.
    """

    name: str = "relevance"
    reads_all: bool = True
    #: Of the tokens for history, what the newest groups have before any other.
    recent_share: float = 0.1
    #: Of the tokens for history, what goes at once of the newest groups where these have to give
    #: way, so that they begin where they did in the build before; 0 drops group by group.
    chunk_share: float = 0.0
    #: Scores passages; the core knows none itself.
    rank: Ranker | None = None
    #: What the builds of this history have in common; without it, this budget.
    stable_budget: StableBudget | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.recent_share <= 1:
            raise ValueError("recent_share has to lie between 0 and 1")
        if not 0 <= self.chunk_share <= 1:
            raise ValueError("chunk_share has to lie between 0 and 1")

    @property
    def stable_prefix(self) -> bool:
        """Tell whether the newest groups begin where they did in the build before."""
        return self.chunk_share > 0

    def with_stable_budget(self, stable_budget: StableBudget) -> "Relevance":
        """Return the strategy for one build."""
        return replace(self, stable_budget=stable_budget)

    def recent(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups within their share, and the newest whatever it costs.

        They reach back to a human message, where that takes no more than half of the budget.
        """
        if self.stable_prefix and (still := self._still(groups, budget)):
            return Fit(kept=tuple(still), stable_prefix=True)
        kept = newest_that_fit(groups, int(budget * self.recent_share)) or groups[-1:]
        turn = groups[max((n for n, group in enumerate(groups) if _has_human(group)), default=0) :]
        whole = len(turn) > len(kept) and cost(turn) <= budget * WHOLE_TURN
        return Fit(kept=tuple(turn if whole else kept))

    def _still(self, groups: Sequence[Group], budget: int) -> Sequence[Group]:
        """Return the newest groups from where a chunk ends; none where the newest has no room."""
        tokens = self.stable_budget.tokens if self.stable_budget else budget
        limit = min(int(tokens * self.recent_share), budget)
        return chunked_window(groups, limit, int(tokens * self.chunk_share), whole=False)

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, and those that score highest of what else fits."""
        if cost(groups) <= budget or self.rank is None:
            return self._chosen(groups, newest_that_fit(groups, budget) or groups[-1:], {}, budget)
        scores = self._scores(groups)
        protected = [group for group in groups if group.pinned]
        recent = self.recent(groups, budget - cost(protected)).kept
        kept = {group.index for group in (*protected, *recent)}
        used = sum(_most(group) for group in groups if group.index in kept)
        # of two that score alike the newer goes first
        for group in sorted(groups, key=lambda g: (scores[g.index], g.index), reverse=True):
            if group.index not in kept and used + _most(group) <= budget:
                kept.add(group.index)
                used += _most(group)
        return self._chosen(groups, [g for g in groups if g.index in kept], scores, budget)

    def _scores(self, groups: Sequence[Group]) -> dict[int, float]:
        assert self.rank is not None  # noqa: S101 - `fit` has looked
        passages = [_passage(group) for group in groups]
        humans = (m.content for g in reversed(groups) for m in g.messages if m.role is Role.HUMAN)
        newest = next(humans, passages[-1].text)
        scores = self.rank(newest, passages, None)
        return {group.index: score for group, score in zip(groups, scores, strict=True)}

    @staticmethod
    def _chosen(
        groups: Sequence[Group], kept: Sequence[Group], scores: dict[int, float], budget: int
    ) -> Fit:
        there = {group.index for group in kept}
        verdicts = {
            group.index: GroupDecision(
                "score" if scores else "older", _rounded(scores, group.index)
            )
            for group in groups
            if scores or group.index not in there
        }
        return Fit(kept=tuple(kept), decisions=verdicts, over_budget=cost(kept) > budget)


def _has_human(group: Group) -> bool:
    return any(message.role is Role.HUMAN for message in group.messages)


def _most(group: Group) -> int:
    """Return what a group costs wherever it stands."""
    return max(group.tokens, group.tokens_last)


def _rounded(scores: dict[int, float], index: int) -> float | None:
    return round(scores[index], 2) if index in scores else None


def _passage(group: Group) -> Passage:
    """Return what is said in a group."""
    text = "\n".join(message.content for message in group.messages)
    first = group.messages[0] if group.messages else None
    return Passage(text, first.role if first else Role.OTHER, first.timestamp if first else None)
