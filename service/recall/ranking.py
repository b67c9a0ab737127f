"""Rank passages by a question: a weighted sum of what speaks for each."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Final

from formatters.model import Passage
from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.relevance import Relevance
from service.recall.features import features
from service.recall.question import read_question

# Where the weights are from: a softmax over all passages was trained to tell those that answer a
# question, on 779 questions about five long chats and 278 about 35 meetings (LoCoMo and QMSum), and
# what came out was rounded by hand. Trained on four fifths and tried on the rest, in turn, they
# find as much; rounding took less than half a point. Weights of sessions, names and neighbours, and
# what long sessions have besides, were chosen later, by what is found: docs/recall.md.

#: What each feature of `service.recall.features` counts.
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
#: What they count besides in a long unbroken session, such as a meeting: there the subject tells
#: more than the single message, and long messages no more than short ones.
LONG_WEIGHTS: Final[Mapping[str, float]] = {"near2500": 2.5, "length": -1.0}
#: There each passage has besides so many times the mean of the scores around it, as many passages
#: on either side: what answers is a stretch of talk.
SMOOTHING_WEIGHT: Final = 3.0
SMOOTHING_RADIUS: Final = 8


def rank(question: str, passages: Sequence[Passage], now: datetime | None = None) -> list[float]:
    """Return a score for each passage, given oldest first; the higher, the more it tells.

    The same for the same passages, and in time that grows with their number: about 9 ms of CPU for
    600 passages that have been seen before, 60 for 5,000. ``now`` is the moment of the question.
    """
    if not passages:
        return []
    columns = features(read_question(question, passages, now), passages)
    scores = [0.0] * len(passages)
    for name, weight in WEIGHTS.items():
        scores = [s + weight * value for s, value in zip(scores, columns[name], strict=True)]
    for name, weight in LONG_WEIGHTS.items():
        shares = zip(scores, columns[name], columns["long"], strict=True)
        scores = [s + weight * value * share for s, value, share in shares]
    around = zip(scores, _around(scores), columns["long"], strict=True)
    return [score + SMOOTHING_WEIGHT * mean * share for score, mean, share in around]


def _around(scores: Sequence[float]) -> list[float]:
    """Return the mean of each score with those around it."""
    sums = [0.0, *accumulate(scores)]
    ends = [
        (max(at - SMOOTHING_RADIUS, 0), min(at + SMOOTHING_RADIUS + 1, len(scores)))
        for at in range(len(scores))
    ]
    return [(sums[last] - sums[first]) / (last - first) for first, last in ends]


RELEVANCE: Final = Relevance(rank=rank)

#: All strategies that come with the service, as they work in it.
RANKING_STRATEGIES: Final[Mapping[str, Strategy]] = {**STRATEGIES, RELEVANCE.name: RELEVANCE}
