"""Keep the newest turns, and of the older ones those most relevant to the question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from formatters.model import Message, Passage, Ranker, Role
from service.budget.groups import (
    Fit,
    Group,
    StableBudget,
    Strategy,
    check_share,
    cost,
    fit_by_score,
    make_fit,
    newest_that_fit,
)
from service.budget.strategies.stable_window import chunked_window

#: The share of the tokens for history that the newest human message and its answers may use.
WHOLE_TURN_SHARE: Final = 0.5
#: The share of the tokens that a question before the newest human message may use, such as "Which
#: one?" before "The second". Any answer there would cost 0.7 points of recall at 250 tokens.
ANSWER_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance(Strategy):
    """Keep the newest groups within a share of the tokens, then others by their score.

    In the service, `service.budget.fit_recall` uses it for more than a choice among groups: there
    the newest turns are shown as usual, and rows of older ones in a block of their own. With
    groups alone, as in process or in a list of strategies, it ranks these by the newest human
    message among them, and they keep their order. Without a ranker it keeps the newest.
    """

    name: str = "relevance"
    reads_all: bool = True
    #: The share of the tokens for history that goes to the newest groups first.
    recent_share: float = 0.0
    #: The share of the tokens for history by which the newest groups are cut at once, so that they
    #: start where they did in the build before; 0 drops group by group.
    chunk_share: float = 0.0
    #: Scores passages; the core has none of its own.
    rank: Ranker | None = None
    #: The budget that all builds of this history share; by default that of this build.
    stable_budget: StableBudget | None = None

    def __post_init__(self) -> None:
        check_share("recent_share", self.recent_share)
        check_share("chunk_share", self.chunk_share)

    @property
    def recalls(self) -> bool:
        """Return whether it chooses single rows of older turns: it needs a ranker."""
        return self.rank is not None

    @property
    def stable_prefix(self) -> bool:
        """Return whether the newest groups begin with the same group from build to build."""
        return self.chunk_share > 0

    def with_stable_budget(self, stable_budget: StableBudget) -> "Relevance":
        """Return the strategy for one build."""
        return replace(self, stable_budget=stable_budget)

    def recent(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups within their share; the newest even if it exceeds the share.

        They reach back to a human message, if that takes no more than half of the budget.
        """
        if self.stable_prefix:
            tokens = self.stable_budget.tokens if self.stable_budget else budget
            limit = min(int(tokens * self.recent_share), budget)
            window = chunked_window(groups, limit, int(tokens * self.chunk_share), whole=False)
            if window:  # there is none if the newest group has no room
                return Fit(kept=tuple(window), stable_prefix=True)
        kept = newest_that_fit(groups, int(budget * self.recent_share)) or groups[-1:]
        turn = _newest_turn(groups)
        is_whole_turn = len(turn) > len(kept) and cost(turn) <= budget * WHOLE_TURN_SHARE
        return Fit(kept=tuple(turn if is_whole_turn else kept))

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest groups, and of the others those with the highest scores that fit."""
        if not groups or cost(groups) <= budget or self.rank is None:
            return make_fit(groups, newest_that_fit(groups, budget) or groups[-1:], budget, "older")
        pinned = [group for group in groups if group.pinned]
        recent = {group.index for group in self.recent(groups, budget - cost(pinned)).kept}
        protected = [group for group in groups if group.pinned or group.index in recent]
        asked = _asked_before(groups)
        if asked and cost(asked) <= min(budget * ANSWER_SHARE, budget - cost(protected)):
            kept = {group.index for group in (*asked, *protected)}
            protected = [group for group in groups if group.index in kept]
        return fit_by_score(groups, _score(groups, self.rank), protected, budget)


def _newest_turn(groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups from the last one with a human message on; all if there is none."""
    for index in reversed(range(len(groups))):
        if _is_human(groups[index]):
            return groups[index:]
    return groups


def _asked_before(groups: Sequence[Group]) -> Sequence[Group]:
    """Return the group before the newest human message if it is an answer that asks something."""
    before = groups[: -len(_newest_turn(groups))][-1:]
    return [group for group in before if not group.calls_tools and any(map(_asks, group.messages))]


def _asks(message: Message) -> bool:
    return message.role is Role.AI and message.content.rstrip().endswith(("?", "？", "؟"))


def _score(groups: Sequence[Group], rank: Ranker) -> dict[int, float]:
    """Score groups by the newest human message, or else by the newest group, by their index.

    The group of that message has the score of the best: ranked, it would match better than any.
    """
    turn = _newest_turn(groups)
    asking = turn[0] if _is_human(turn[0]) else groups[-1]
    others = [group for group in groups if group is not asking]
    humans = (m.content for m in reversed(asking.messages) if m.role is Role.HUMAN)
    question = next(humans, _passage(asking).text)
    scores = rank(question, [_passage(group) for group in others], None)
    scored = {group.index: score for group, score in zip(others, scores, strict=True)}
    return {**scored, asking.index: max(scores, default=0.0)}


def _is_human(group: Group) -> bool:
    return any(message.role is Role.HUMAN for message in group.messages)


def _passage(group: Group) -> Passage:
    text = "\n".join(message.content for message in group.messages)
    first = group.messages[0] if group.messages else None
    return Passage(text, first.role if first else Role.OTHER, first.timestamp if first else None)
