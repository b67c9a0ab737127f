"""The features that rank passages: a value for each passage, most of them from 0 to 1."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate
from math import fsum
from typing import Final

from formatters.times import to_local_time
from service.recall.bm25 import Postings, add_postings, bm25_damped, idf
from service.recall.columns import Values
from service.recall.corpus import Corpus
from service.recall.dates import find_days
from service.recall.question import Question
from service.recall.terms import STOP_WORDS, words

#: Distances up to which the scores of others count for a passage, in tokens: an exchange, a
#: subject, and, in long sessions only, a conversation.
NEAR_TOKENS: Final = (100, 300)
FAR_TOKENS: Final = 2500
#: Distances up to which words of the question count as close to a passage, in tokens.
COVERAGE_TOKENS: Final = (120, 400)
#: How often a code counts, such as "HAT083", or a number of as many digits that is no year, if no
#: more than these passages have it: it says which one is meant. Neighbours may overlap.
CODE_WEIGHT: Final = 3.0
CODE_DIGITS: Final = 4
CODE_PASSAGES: Final = 2
_YEAR: Final = re.compile(r"(?:19|20)\d\d")

#: A question about what the assistant said or did, in English, unless it is about what the human
#: said.
_OF_ASSISTANT: Final = re.compile(
    r"\b(?:did|had|have) you (?!(?:hear|heard|know|known|notice|noticed|remember|see|seen)\b)\w"
    r"|\byou (?:advised|called|described|explained|found|gave|listed|mentioned|named|proposed|ran"
    r"|recommended|said|showed|suggested|told|used|wrote)\b"
    r"|\byour (?:\w+ )?(?:advice|(?:answer|explanation|idea|list|option|proposal|recommendation"
    r"|reply|suggestion)s?)\b",
    re.IGNORECASE,
)
_OF_HUMAN: Final = re.compile(
    r"\b(?:I|we) (?:asked|gave|mentioned|said|sent|showed|told|wrote)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Search:
    """A question, and the analyzed passages with the places of its terms."""

    question: Question
    corpus: Corpus
    #: Of the question's stems, and of the kinds of what its words name.
    postings: Postings

    def find_boost(self, stem: str) -> float:
        """Return how often a stem of the question counts."""
        is_rare = 0 < len(self.postings[stem]) <= CODE_PASSAGES
        return CODE_WEIGHT if is_rare and _is_code(stem) else 1.0


def _is_code(stem: str) -> bool:
    if not stem.isdigit():
        return any(map(str.isdigit, stem))
    return len(stem) >= CODE_DIGITS and not _YEAR.fullmatch(stem)


def compute_features(question: Question, corpus: Corpus) -> dict[str, Values]:
    """Return the features of passages by their names; values that are all 0 may be left out."""
    search = _Search(question, corpus, corpus.stems.find([*question.stems, *question.kinds]))
    by_stems = _stem_scores(search)
    return {
        **_gram_scores(search),
        **by_stems,
        **_outdated(search, by_stems["message"]),
        **_kind_scores(search),
        **_coverage(search),
        **_date_relations(search),
        **_speaker_named(search),
        **_said_by_human(search),
        "length": corpus.lengths,
        "asks": corpus.asks,
        "names": corpus.names,
    }


def _gram_scores(search: _Search) -> Mapping[str, Values]:
    """Return BM25 by runs of characters, and the sums of these scores around each passage."""
    query, corpus, scale = search.question.grams, search.corpus, search.corpus.columns.scale
    by_grams = bm25_damped(query, corpus.grams.find(query), corpus.grams.damping)
    scores = corpus.columns.make(by_grams)
    reaches = (*NEAR_TOKENS, FAR_TOKENS) if corpus.has_long else NEAR_TOKENS
    near = corpus.sessions.near(scores, map(float, reaches))
    near_scores = {f"near{reach}": scale(each) for reach, each in zip(reaches, near, strict=True)}
    return {"ngram": scale(scores), **near_scores}


def _stem_scores(search: _Search) -> Mapping[str, Values]:
    """Return BM25 by stems, of each passage, and of its message and its session as one text."""
    stems, corpus, scale = search.question.stems, search.corpus, search.corpus.columns.scale
    query = {stem: weight * search.find_boost(stem) for stem, weight in stems.items()}
    postings = {stem: search.postings[stem] for stem in query}

    def score_groups(group_of: Sequence[int], damping: Sequence[float]) -> Values:
        by_group = bm25_damped(query, add_postings(postings, group_of), damping)
        return scale([by_group[group] for group in group_of])

    scores = {
        "message": scale(bm25_damped(query, postings, corpus.stems.damping)),
        "session": score_groups(corpus.sessions.of, corpus.session_damping),
    }
    if corpus.continued_share:
        scores["whole"] = score_groups(corpus.messages, corpus.message_damping)
    return scores


def _outdated(search: _Search, matches: Values) -> Mapping[str, Values]:
    """Return how well each passage matches, times the share of all that matches in later sessions.

    Only for questions that ask for what is so now, and name no day.
    """
    question = search.question
    if not question.of_now or find_days(question.text, question.now) or not any(matches):
        return {}
    session_of = search.corpus.sessions.of
    by_session = [0.0] * (session_of[-1] + 1)
    for session, value in zip(session_of, matches, strict=True):
        by_session[session] += value
    until = [*accumulate(by_session)]
    total = until[-1]
    matching = zip(session_of, matches, strict=True)
    outdated = [value * (1.0 - until[session] / total) for session, value in matching]
    return {"outdated": outdated}


def _kind_scores(search: _Search) -> Mapping[str, Values]:
    """Return the sum of the rarities of kinds of what the question's words name."""
    if not any(search.postings[kind] for kind in search.question.kinds):
        return {}
    scores = [0.0] * len(search.corpus.passages)
    # in an order that is the same on all machines, so that sums are, too
    for kind in sorted(search.question.kinds):
        postings = search.postings[kind]
        rarity = idf(len(scores), len(postings))
        for index, _ in postings:
            scores[index] += rarity
    return {"kinds": search.corpus.columns.scale(scores)}


def _coverage(search: _Search) -> Mapping[str, Values]:
    """Return the shares of the question's terms, weighted by rarity, within some tokens."""
    count, postings = len(search.corpus.passages), search.postings
    rarities = {
        term: min(weight, 1.0) * search.find_boost(term) * idf(count, len(postings[term]))
        for term, weight in search.question.stems.items()
    }
    found = [(rarity, postings[term]) for term, rarity in rarities.items() if postings[term]]
    if not found:
        return {}
    total = fsum(rarities.values())
    covered = {}
    for reach in COVERAGE_TOKENS:
        starts, ends = search.corpus.sessions.within(float(reach))
        #: What each passage has more than the one before it.
        steps = [0.0] * (count + 1)
        for rarity, with_term in found:
            first = last = 0  # the passages with the term that were found last
            for index, _ in with_term:
                start = starts[index]
                if start > last:
                    steps[first] += rarity
                    steps[last] -= rarity
                    first = start
                last = ends[index]
            steps[first] += rarity
            steps[last] -= rarity
        covered[f"cov{reach}"] = [value / total for value in accumulate(steps[:-1])]
    return covered


def _date_relations(search: _Search) -> Mapping[str, Values]:
    """Return 1 for passages of the days that the question names, and for those soon after."""
    question = search.question
    named = find_days(question.text, question.now)
    if not named:
        return {}
    offset = question.now.utcoffset() if question.now else None
    minutes_west = -int(offset.total_seconds()) // 60 if offset else 0
    by_day: dict[date, int] = {}

    def relation(at: datetime | None) -> int:
        if at is None:
            return 0
        day = to_local_time(at, minutes_west).date()
        if day not in by_day:
            soon_after = any(days.just_before(day) for days in named)
            by_day[day] = 1 if any(days.has(day) for days in named) else -soon_after
        return by_day[day]

    relations = [relation(passage.at) for passage in search.corpus.passages]
    return {
        "date": [float(relation > 0) for relation in relations],
        "after": [float(relation < 0) for relation in relations],
    }


def _said_by_human(search: _Search) -> Mapping[str, Values]:
    """Return how far it counts that the human speaks: not for questions about the assistant."""
    text = search.question.text
    is_of_assistant = _OF_ASSISTANT.search(text) and not _OF_HUMAN.search(text)
    return {} if is_of_assistant else {"human": search.corpus.human}


def _speaker_named(search: _Search) -> Mapping[str, Values]:
    """Return 1 for passages that open with ``Name: …`` of a person named in the question."""
    question, speakers = search.question, search.corpus.speakers
    if not speakers:
        return {}
    # "a" and "I" are words of a question, not names
    named = frozenset(words(question.text)) - STOP_WORDS[question.language]
    matching = [index for index, name in speakers if not named.isdisjoint(name)]
    if not matching:
        return {}
    values = [0.0] * len(search.corpus.passages)
    for index in matching:
        values[index] = 1.0
    return {"named": values}
