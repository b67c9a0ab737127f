"""Rank passages by a question: a weighted sum of their features."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Final

from formatters.model import Passage
from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.relevance import Relevance
from service.recall.columns import Values
from service.recall.corpus import Corpus, read_corpus
from service.recall.dates import find_days
from service.recall.features import compute_features
from service.recall.question import read_question
from service.recall.similarity import add_similarity

# The source of the weights: a softmax over all passages was trained to recognize those that answer
# a question, on 779 questions about five long chats and 278 about 35 meetings (LoCoMo and QMSum),
# and the result was rounded by hand. What was changed later was chosen by what is found in chats,
# meetings, bursts of short messages and chats with code, so that it holds on a set that was left
# out: bench/recall/README.md.

#: The weights of the features of `service.recall.features`. That of `whole` is for a history in
#: which all passages are parts of long messages, and falls with their share.
WEIGHTS: Final[Mapping[str, float]] = {
    "message": 3.0,
    "whole": 4.0,
    "ngram": 1.5,
    "near100": 1.5,
    "near300": 0.5,
    "session": 0.75,
    "kinds": 1.25,
    "cov120": 2.5,
    "cov400": 1.5,
    "length": 1.0,
    "date": 3.0,
    "after": 2.0,
    "asks": -0.75,
    "named": 2.0,
    "names": 1.25,
    "human": 2.0,
    "outdated": -2.0,
}
#: The weights if similarities are known. Similarities say more about a passage and its neighbours
#: than their words do.
SEMANTIC_WEIGHTS: Final[Mapping[str, float]] = {
    **WEIGHTS,
    "message": 1.5,
    "near100": 0.5,
    "kinds": 1.0,
}
#: Additional weights in a long unbroken session, such as a meeting: there the subject matters more
#: than the single message, and long messages no more than short ones.
LONG_WEIGHTS: Final[Mapping[str, float]] = {"near2500": 2.5, "length": -1.0}
#: In a long session, the weight of the mean score around a passage, and the number of passages on
#: either side that it includes: there several passages together answer a question.
SMOOTHING_WEIGHT: Final = 1.5
SMOOTHING_RADIUS: Final = 8
#: The share of a question's runs of letters that is a match. Of words that seven histories don't
#: have, 5 to 30 % matched so, and of pairs of them up to 5 %; of words of theirs with a typing
#: error, 29 to 55 %.
LEAST_RUNS: Final = 0.5
#: Scores are rounded to parts of one, so that all machines rank in the same way.
UNITS: Final = 1_000


def rank(question: str, passages: Sequence[Passage], now: datetime | None = None) -> list[float]:
    """Return a score for each passage, given oldest first: how relevant it is for its tokens.

    The same passages always have the same scores, the least of which is 0, and the time grows
    linearly with their number: about 1 ms of CPU for 600 short passages that were ranked before, 6
    for 5,000 with numpy and 11 without it. ``now`` is the moment of the question.
    """
    if not passages:
        return []
    read = read_question(question, passages, now)
    corpus = read_corpus(passages, read.language)
    features, long, columns = compute_features(read, corpus), corpus.long, corpus.columns
    similarities = [each.similarity for each in passages]
    has_similarities = similarities.count(None) < len(similarities)
    weights = _choose_weights(corpus, has_similarities=has_similarities)
    weighted = [(weight, features[name]) for name, weight in weights.items() if name in features]
    scores = columns.add_weighted(weighted, len(passages))
    if corpus.has_long:
        # by the distance from the mean, so that no session gains by its length alone
        for name, weight in LONG_WEIGHTS.items():
            scores = columns.add_centred(scores, weight, features[name], long)
    if has_similarities:
        unmatched = _find_unmatched(features, corpus)
        scores = columns.make(add_similarity([*map(float, scores)], similarities, unmatched))
    if corpus.has_long:
        means = columns.means_around(scores, SMOOTHING_RADIUS)
        scores = columns.add_centred(scores, SMOOTHING_WEIGHT, means, long)
    return columns.round_ratios(scores, corpus.costs, UNITS)


def find_matches(question: str, passages: Sequence[Passage], now: datetime | None) -> list[bool]:
    """Return for each passage whether it has a word of the question, or of a kind it names.

    A word counts in any form. Half of the question's runs of letters are as good: they are a word
    in another form, or a mistyped one. A question that names a day is about what was said then,
    whatever the words, so it matches all passages. One of stop words or signs alone matches none.
    """
    if not passages:
        return []
    read = read_question(question, passages, now)
    if find_days(read.text, now):
        return [True] * len(passages)
    if not read.has_terms:
        return [False] * len(passages)
    terms, runs = read.stems.keys() | read.kinds, read.grams.keys()
    least = max(len(runs) * LEAST_RUNS, 1)
    return [
        not terms.isdisjoint(each.stems) or len(runs & each.grams.keys()) >= least
        for each in read_corpus(passages, read.language).analyses
    ]


def _choose_weights(corpus: Corpus, *, has_similarities: bool) -> Mapping[str, float]:
    """Return the weights for passages.

    The more of them are parts of long messages, the more the whole message counts. Besides
    similarities, their own words then count more, too: what is around them is often about something
    else.
    """
    share, weights = corpus.continued_share, SEMANTIC_WEIGHTS if has_similarities else WEIGHTS
    own = weights["message"] + share * (WEIGHTS["message"] - weights["message"])
    return {**weights, "message": own, "whole": share * weights["whole"]}


def _find_unmatched(features: Mapping[str, Values], corpus: Corpus) -> float:
    """Return how little of the question's words any passage has around it, from 0 to 1.

    In long sessions and long messages this says less: what answers is more than its own words.
    """
    covered = float(max(features.get("cov120", (0.0,))))
    short_share = (1.0 - fmean(map(float, corpus.long))) * max(
        1.0 - 2.0 * corpus.continued_share, 0.0
    )
    return float((1.0 - covered) ** 2 * short_share)


RELEVANCE: Final = Relevance(rank=rank)

#: All strategies that come with the service, with the ranker.
RANKING_STRATEGIES: Final[Mapping[str, Strategy]] = {**STRATEGIES, RELEVANCE.name: RELEVANCE}
