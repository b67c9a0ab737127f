"""Rank passages by a question: a weighted sum of their features."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Final

from formatters.model import Passage
from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.relevance import Relevance
from service.recall.features import compute_features
from service.recall.question import read_question

# The source of the weights: a softmax over all passages was trained to recognize those that answer
# a question, on 779 questions about five long chats and 278 about 35 meetings (LoCoMo and QMSum),
# and the result was rounded by hand. Trained on four fifths and tested on the rest, in turn, they
# find as much; rounding cost less than half a point. The weights of sessions, names and neighbours,
# and the additional ones of long sessions, were chosen later by what is found: docs/recall.md.

#: The weights of the features of `service.recall.features`.
WEIGHTS: Final[Mapping[str, float]] = {
    "message": 1.0,
    "ngram": 1.5,
    "near100": 1.5,
    "near300": 0.5,
    "session": 0.75,
    "cov120": 2.5,
    "cov400": 1.5,
    "length": 1.0,
    "date": 3.0,
    "after": 1.5,
    "asks": -0.75,
    "named": 2.0,
    "names": 1.25,
}
#: Additional weights in a long unbroken session, such as a meeting: there the subject matters more
#: than the single message, and long messages no more than short ones.
LONG_WEIGHTS: Final[Mapping[str, float]] = {"near2500": 2.5, "length": -1.0}
#: In a long session, the weight of the mean score around a passage, and the number of passages on
#: either side that it includes: there several passages together answer a question.
SMOOTHING_WEIGHT: Final = 3.0
SMOOTHING_RADIUS: Final = 8


def rank(question: str, passages: Sequence[Passage], now: datetime | None = None) -> list[float]:
    """Return a score for each passage, given oldest first; higher is more relevant.

    The same passages always have the same scores, and the time grows linearly with their number:
    about 9 ms of CPU for 600 passages that were ranked before, 60 for 5,000. ``now`` is the moment
    of the question.
    """
    if not passages:
        return []
    features = compute_features(read_question(question, passages, now), passages)
    long = features["long"]
    scores = [0.0] * len(passages)
    for name, weight in WEIGHTS.items():
        scores = [s + weight * value for s, value in zip(scores, features[name], strict=True)]
    for name, weight in LONG_WEIGHTS.items():
        shares = zip(scores, features[name], long, strict=True)
        scores = [s + weight * value * share for s, value, share in shares]
    smoothed = zip(scores, _means_around(scores), long, strict=True)
    return [score + SMOOTHING_WEIGHT * mean * share for score, mean, share in smoothed]


def _means_around(scores: Sequence[float]) -> list[float]:
    """Return the mean of each score and the `SMOOTHING_RADIUS` scores on either side of it."""
    sums = [0.0, *accumulate(scores)]
    means = []
    for index in range(len(scores)):
        first = max(index - SMOOTHING_RADIUS, 0)
        last = min(index + SMOOTHING_RADIUS + 1, len(scores))
        means.append((sums[last] - sums[first]) / (last - first))
    return means


RELEVANCE: Final = Relevance(rank=rank)

#: All strategies that come with the service, with the ranker.
RANKING_STRATEGIES: Final[Mapping[str, Strategy]] = {**STRATEGIES, RELEVANCE.name: RELEVANCE}
