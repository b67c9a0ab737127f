"""The features by which passages are ranked: a value for each passage, most of them from 0 to 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from statistics import median
from typing import Final

from formatters.model import Passage
from formatters.times import to_local_time
from service.recall.bm25 import Postings, add_postings, bm25, find_postings, idf, scale
from service.recall.dates import Days, find_days
from service.recall.question import Question
from service.recall.sessions import Sessions, split_sessions
from service.recall.words import Analysis, analyze, words

#: Distances up to which the scores of others count for a passage, in tokens: an exchange, a
#: subject, a conversation.
NEAR_TOKENS: Final = (100, 300, 2500)
#: Distances up to which words of the question count as close to a passage, in tokens.
COVERAGE_TOKENS: Final = (120, 400)
#: Characters before a colon that may be a speaker's name.
SPEAKER_CHARS: Final = 30
#: Names in a passage above which more make no difference.
MAX_NAMES: Final = 3
#: Tokens above which a session counts as long, and from which on it does so fully.
LONG_SESSION: Final = (1_500, 8_000)

#: Limits of the logarithm of a passage's length in median lengths: twice the median makes a
#: difference, ten times no more than three times.
SHORTEST, LONGEST = -1.5, 1.0

#: A value for each passage.
Values = Sequence[float]


@dataclass(frozen=True, slots=True)
class _Search:
    """A question, and the analyzed passages with the places of its terms."""

    question: Question
    passages: Sequence[Passage]
    analyses: Sequence[Analysis]
    sessions: Sessions
    #: Of the question's stems.
    postings: Postings


def compute_features(question: Question, passages: Sequence[Passage]) -> dict[str, Values]:
    """Return the features by their names, for passages in their order; at least one is required."""
    analyses = [analyze(passage.text, question.language) for passage in passages]
    postings = find_postings(question.stems, [analysis.stems for analysis in analyses])
    search = _Search(question, passages, analyses, split_sessions(passages), postings)
    relations = _date_relations(search)
    long = _long_session(search.sessions)
    return {
        **_gram_scores(search),
        **_stem_scores(search),
        **{f"cov{reach}": _coverage(search, reach) for reach in COVERAGE_TOKENS},
        "length": _lengths(search.sessions),
        "date": [float(relation > 0) for relation in relations],
        "after": [float(relation < 0) for relation in relations],
        "asks": [float(passage.text.rstrip().endswith(("?", "？"))) for passage in passages],
        "named": _speaker_named(search),
        "names": _names(search, long),
        "long": long,
    }


# --- words -----------------------------------------------------------------------------------


def _gram_scores(search: _Search) -> Mapping[str, Values]:
    """Return BM25 by runs of characters, and the sums of these scores around each passage."""
    query = search.question.grams
    postings = find_postings(query, [analysis.grams for analysis in search.analyses])
    scores = bm25(query, postings, [analysis.gram_count for analysis in search.analyses])
    near = {
        f"near{reach}": scale(search.sessions.near(scores, float(reach))) for reach in NEAR_TOKENS
    }
    return {"ngram": scale(scores), **near}


def _stem_scores(search: _Search) -> Mapping[str, Values]:
    """Return BM25 by stems, of each passage and of its session as one text."""
    query, sessions = search.question.stems, search.sessions
    lengths = [analysis.stem_count for analysis in search.analyses]
    session_lengths = [0] * len(sessions.totals)
    for session, length in zip(sessions.of, lengths, strict=True):
        session_lengths[session] += length
    by_session = bm25(query, add_postings(search.postings, sessions.of), session_lengths)
    return {
        "message": scale(bm25(query, search.postings, lengths)),
        "session": scale([by_session[session] for session in sessions.of]),
    }


def _coverage(search: _Search, reach: int) -> Values:
    """Return the share of the question's terms, weighted by rarity, within ``reach`` tokens."""
    count = len(search.passages)
    around = search.sessions.within(float(reach))
    covered = [0.0] * count
    total = 0.0
    for term, weight in search.question.stems.items():
        postings = search.postings[term]
        rarity = min(weight, 1.0) * idf(count, len(postings))
        total += rarity
        done = 0  # passages before this one have the term already
        for index, _ in postings:
            first, last = around[index]
            for near in range(max(first, done), last):
                covered[near] += rarity
            done = last
    return [value / total for value in covered] if total else covered


# --- lengths ---------------------------------------------------------------------------------


def _lengths(sessions: Sessions) -> Values:
    """Return the logarithm of each passage's length in median lengths, within limits."""
    usual = median(sessions.tokens)
    return [min(max(math.log(size / usual), SHORTEST), LONGEST) for size in sessions.tokens]


def _long_session(sessions: Sessions) -> Values:
    """Return how far each passage is in a long unbroken session, from 0 to 1."""
    low, high = map(math.log, LONG_SESSION)
    shares = [
        min(max((math.log(total) - low) / (high - low), 0.0), 1.0) for total in sessions.totals
    ]
    return [shares[session] for session in sessions.of]


# --- dates and names -------------------------------------------------------------------------


def _date_relations(search: _Search) -> Sequence[int]:
    """Return 1 for passages of the days that the question names, -1 for those soon after, or 0."""
    question = search.question
    named = find_days(question.text, question.now)
    if not named:
        return [0] * len(search.passages)
    offset = question.now.utcoffset() if question.now else None
    minutes_west = -int(offset.total_seconds()) // 60 if offset else 0
    by_day: dict[date, int] = {}

    def relation(at: datetime | None) -> int:
        if at is None:
            return 0
        day = to_local_time(at, minutes_west).date()
        if day not in by_day:
            by_day[day] = _date_relation(day, named)
        return by_day[day]

    return [relation(passage.at) for passage in search.passages]


def _date_relation(day: date, named: Sequence[Days]) -> int:
    if any(days.has(day) for days in named):
        return 1
    return -1 if any(days.just_before(day) for days in named) else 0


def _speaker_named(search: _Search) -> Values:
    """Return 1 for passages that open with ``Name: …`` of a person named in the question."""
    question_words = frozenset(words(search.question.text))
    return [
        float(not question_words.isdisjoint(_speaker(passage.text))) for passage in search.passages
    ]


def _speaker(text: str) -> Sequence[str]:
    name, colon, _ = text[: SPEAKER_CHARS + 1].partition(":")
    return words(name) if colon else ()


def _names(search: _Search, long: Values) -> Values:
    """Return how many names each passage has, from 0 to 1; in long sessions they count less."""
    counts = [min(analysis.names, MAX_NAMES) / MAX_NAMES for analysis in search.analyses]
    return [count * (1 - share) for count, share in zip(counts, long, strict=True)]
