"""What speaks for a passage: a column of numbers for each feature, most of them from 0 to 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from statistics import median
from typing import Final

from formatters.model import Passage
from formatters.times import to_local_time
from service.recall.dates import find_days
from service.recall.question import Question
from service.recall.sessions import Sessions, split_sessions
from service.recall.words import Analysis, analyze, words

#: The values of Lucene's authors for short texts (Kamphuis et al., "Which BM25 do you mean?").
K1: Final = 0.9
B: Final = 0.4

#: The texts that have a term, ascending, with how often.
Postings = Mapping[str, Sequence[tuple[int, int]]]


def postings(query: Mapping[str, float], texts: Sequence[Mapping[str, int]]) -> Postings:
    """Look a question's terms up in texts."""
    found: dict[str, list[tuple[int, int]]] = {term: [] for term in query}
    terms = query.keys()
    for place, counts in enumerate(texts):
        # a set of few, in an order that doesn't matter: each term has a list of its own
        for term in terms & counts.keys():
            found[term].append((place, counts[term]))
    return found


def idf(texts: int, having: int) -> float:
    """Return how telling a term is that so many of all texts have; never below 0."""
    return math.log(1 + (texts - having + 0.5) / (having + 0.5))


def bm25(query: Mapping[str, float], found: Postings, lengths: Sequence[int]) -> list[float]:
    """Score texts of these lengths, in terms, by what was found in them."""
    scores = [0.0] * len(lengths)
    average = sum(lengths) / len(lengths) or 1.0
    damped = [K1 * (1 - B + B * length / average) for length in lengths]
    for term, weight in query.items():
        rarity = weight * idf(len(lengths), len(found[term])) * (K1 + 1)
        for place, count in found[term]:
            scores[place] += rarity * count / (count + damped[place])
    return scores


#: How far around a passage others count for it, in tokens: an exchange, a subject, a conversation.
NEAR_TOKENS: Final = (100, 300, 2500)
#: How far around it the question's words may stand.
COVERAGE_TOKENS: Final = (120, 400)
#: Characters before a colon that may be a speaker's name.
SPEAKER_CHARS: Final = 30
#: Names in a passage, from which on more tell no more.
MAX_NAMES: Final = 3
#: Tokens of a session from which on it is a long one, and at which it is one wholly.
LONG_SESSION: Final = (1_500, 8_000)

#: What the logarithm of a passage's length, in usual lengths, counts at least and at most: twice a
#: usual length tells something, ten times it no more than three times.
SHORTEST, LONGEST = -1.5, 1.0

#: A value for each passage.
Values = Sequence[float]


@dataclass(frozen=True, slots=True)
class _Searched:
    """Passages, analysed, and where the question's terms are in them."""

    passages: Sequence[Passage]
    analyses: Sequence[Analysis]
    sessions: Sessions
    question: Question
    found: Postings


def features(question: Question, passages: Sequence[Passage]) -> dict[str, Values]:
    """Return the columns by their names, for passages in their order; there has to be one."""
    analyses = [analyze(passage.text, question.language) for passage in passages]
    found = postings(question.stems, [each.stems for each in analyses])
    searched = _Searched(passages, analyses, split_sessions(passages), question, found)
    days, long = _days(searched), _longness(searched.sessions)
    return {
        **_by_grams(searched),
        **_by_stems(searched),
        **{f"cov{reach}": _covered(searched, reach) for reach in COVERAGE_TOKENS},
        "length": _lengths(searched.sessions),
        "date": [float(told > 0) for told in days],
        "after": [float(told < 0) for told in days],
        "asks": [float(passage.text.rstrip().endswith(("?", "？"))) for passage in passages],
        "named": _named(searched),
        "names": _names(searched, long),
        "long": long,
    }


def _scaled(column: Values) -> Values:
    """Divide by the largest value, so that the best passage has 1."""
    most = max(column)
    return [value / most for value in column] if most > 0 else column


def _by_grams(searched: _Searched) -> Mapping[str, Values]:
    query = searched.question.grams
    found = postings(query, [each.grams for each in searched.analyses])
    scores = bm25(query, found, [each.gram_count for each in searched.analyses])
    around = {
        f"near{reach}": _scaled(searched.sessions.near(scores, float(reach)))
        for reach in NEAR_TOKENS
    }
    return {"ngram": _scaled(scores), **around}


def _by_stems(searched: _Searched) -> Mapping[str, Values]:
    query, found = searched.question.stems, searched.found
    lengths = [each.stem_count for each in searched.analyses]
    of, count = searched.sessions.of, len(searched.sessions.totals)
    whole = [0] * count
    for session, length in zip(of, lengths, strict=True):
        whole[session] += length
    by_session = bm25(query, _joined(found, of), whole)
    return {
        "message": _scaled(bm25(query, found, lengths)),
        "session": _scaled([by_session[session] for session in of]),
    }


def _joined(found: Postings, of: Sequence[int]) -> Postings:
    """Return the postings of sessions, from those of their passages."""
    joined = {}
    for term, places in found.items():
        counts: dict[int, int] = {}
        for place, count in places:
            counts[of[place]] = counts.get(of[place], 0) + count
        joined[term] = list(counts.items())
    return joined


def _covered(searched: _Searched, reach: int) -> Values:
    """Return the share of the question, by the rarity of its words, that stands so close by."""
    count = len(searched.passages)
    around = searched.sessions.within(float(reach))
    covered = [0.0] * count
    total = 0.0
    for term, weight in searched.question.stems.items():
        places = searched.found[term]
        rarity = min(weight, 1.0) * idf(count, len(places))
        total += rarity
        done = 0
        for place, _ in places:
            first, last = around[place]
            for near in range(max(first, done), last):
                covered[near] += rarity
            done = last
    return [value / total for value in covered] if total else covered


def _lengths(told: Sessions) -> Values:
    usual = median(told.tokens)
    return [min(max(math.log(size / usual), SHORTEST), LONGEST) for size in told.tokens]


def _longness(told: Sessions) -> Values:
    """Return how far each passage stands in a long unbroken session, from 0 to 1."""
    low, high = map(math.log, LONG_SESSION)
    shares = [min(max((math.log(t) - low) / (high - low), 0.0), 1.0) for t in told.totals]
    return [shares[session] for session in told.of]


def _days(searched: _Searched) -> Sequence[int]:
    """Return 1 for passages of the days that the question names, -1 for those soon after."""
    question = searched.question
    named = find_days(question.text, question.now)
    if not named:
        return [0] * len(searched.passages)
    offset = question.now.utcoffset() if question.now else None
    west = -int(offset.total_seconds()) // 60 if offset else 0
    known: dict[date, int] = {}

    def told(at: datetime | None) -> int:
        if at is None:
            return 0
        day = to_local_time(at, west).date()
        if day not in known:
            after = -int(any(days.just_before(day) for days in named))
            known[day] = 1 if any(days.has(day) for days in named) else after
        return known[day]

    return [told(passage.at) for passage in searched.passages]


def _named(searched: _Searched) -> Values:
    """Return 1 for passages that open with ``Name: …`` of somebody whom the question names."""
    asked = frozenset(words(searched.question.text))
    return [float(not asked.isdisjoint(_name(each.text))) for each in searched.passages]


def _names(searched: _Searched, long: Values) -> Values:
    """Return how many names each passage has, from 0 to 1; in long sessions they tell nothing."""
    counts = [min(each.names, MAX_NAMES) / MAX_NAMES for each in searched.analyses]
    return [count * (1 - share) for count, share in zip(counts, long, strict=True)]


def _name(text: str) -> Sequence[str]:
    name, colon, _ = text[: SPEAKER_CHARS + 1].partition(":")
    return words(name) if colon else ()
