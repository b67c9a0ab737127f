"""Keep what scores highest by role, age, keywords and length."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from formatters.model import Message, Role, cached
from service.budget.groups import Fit, Group, Strategy, fit_by_score

# The constants have the names and values of the source document (REPLOID's context manager).
RECENCY_WEIGHT: Final = 40.0
#: In the service, history has no system messages.
ROLE_WEIGHT_SYSTEM: Final = 30.0
ROLE_WEIGHT_USER: Final = 20.0
ROLE_WEIGHT_MODEL: Final = 10.0
KEYWORD_WEIGHT: Final = 15.0
LENGTH_WEIGHT: Final = 5.0

#: Points by role; other roles get none.
ROLE_WEIGHTS: Final[Mapping[Role, float]] = MappingProxyType(
    {Role.HUMAN: ROLE_WEIGHT_USER, Role.AI: ROLE_WEIGHT_MODEL, Role.TOOL: ROLE_WEIGHT_MODEL}
)
#: Points by the words in a message: whole words, in any case.
KEYWORD_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "error|errors|fail|failed|failure|exception": KEYWORD_WEIGHT,
        "tool|tools|function|functions": 10.0,
        "create|update|delete|success|completed": 10.0,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance(Strategy):
    """Keep the groups that score highest; a group has the score of its best message.

    The weights are those of the source document (REPLOID's context manager), whose score is the sum
    of role, recency, keywords and length, at most 100.
    """

    name: str = "importance"
    reads_all: bool = True
    role_weights: Mapping[Role, float] = field(default_factory=lambda: ROLE_WEIGHTS)
    #: Points of the newest message; the oldest gets none.
    recency_weight: float = RECENCY_WEIGHT
    #: The most points for keywords.
    keyword_limit: float = 25.0
    #: Points for a message of more than ``long_chars`` characters.
    length_weight: float = LENGTH_WEIGHT
    long_chars: int = 1000

    def fit(self, groups: Sequence[Group], budget: int) -> Fit:
        """Return the newest group, and of the others those that score highest and fit."""
        protected = [group for group in groups if group.pinned or group is groups[-1]]
        return fit_by_score(groups, self.scores(groups), protected, budget)

    def scores(self, groups: Sequence[Group]) -> dict[int, float]:
        """Return the score of each group, by its index."""
        total = sum([len(group.messages) for group in groups])
        scores: dict[int, float] = {}
        first = 0
        for group in groups:
            messages = group.messages
            points = [self.score(each, n, total) for n, each in enumerate(messages, start=first)]
            scores[group.index] = max(points, default=0.0)
            first += len(messages)
        return scores

    def score(self, message: Message, index: int, total: int) -> float:
        """Return the score of one of ``total`` messages; ``index`` is 0 for the oldest."""
        newest = index == total - 1
        recency = self.recency_weight if newest else self.recency_weight * index / total
        keywords = cached(message.made, _score_keywords, _score_keywords, message.content)
        length = self.length_weight if len(message.content) > self.long_chars else 0.0
        role = self.role_weights.get(message.role, 0.0)
        return role + recency + min(keywords, self.keyword_limit) + length


_WORD: Final = re.compile(r"\w+")
_KEYWORDS: Final = tuple(
    (frozenset(words.split("|")), points) for words, points in KEYWORD_WEIGHTS.items()
)
_WORDS: Final = tuple(word for words, _ in _KEYWORDS for word in words)
#: The words that have no other one in them: a text without any of these has no keyword.
_STEMS: Final = tuple(word for word in _WORDS if sum(other in word for other in _WORDS) == 1)


def _score_keywords(text: str) -> float:
    lower = text.lower()
    if not any(stem in lower for stem in _STEMS):  # several times as fast as the search
        return 0.0
    words = {*_WORD.findall(lower)}
    return sum(points for keywords, points in _KEYWORDS if not keywords.isdisjoint(words))
