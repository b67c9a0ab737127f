"""The data on passages that ranking needs for any question; it is kept between builds."""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul
from statistics import median
from threading import Lock
from typing import Final

from cachetools import LRUCache, cached

from formatters.model import Passage, Role
from service.recall.bm25 import Postings, damp
from service.recall.terms import Analysis, analyze, cjk_chars, words

#: The passages of all corpora that are kept; each takes about 1 KB besides its analysis.
MAX_PASSAGES: Final = 20_000
#: The postings that are kept with a corpus, for each of its passages.
KEPT_POSTINGS: Final = 15

#: Characters before a colon that may be a speaker's name.
SPEAKER_CHARS: Final = 30
#: How much longer the others' passages are than the human's where what the human says counts fully:
#: an assistant's long answers have many words, and what they answer says what matters.
ASYMMETRY: Final = 2.5
#: Characters of a longer passage that count for this.
ASYMMETRY_CHARS: Final = 500
#: Names in a passage above which more make no difference.
MAX_NAMES: Final = 3
#: Tokens above which a session starts to count as long, and at which it fully does.
LONG_SESSION: Final = (1_500, 8_000)

#: How far passages without times count as in a long session: their breaks are unknown.
UNTIMED_SHARE: Final = 0.5

#: Limits of the logarithm of a passage's length in median lengths: twice the median makes a
#: difference, ten times no more than three times.
SHORTEST, LONGEST = -1.5, 1.0

#: A break that ends a session.
SESSION_BREAK: Final = timedelta(hours=1)
#: The estimate of tokens: characters per token, and the tokens of a row besides its text. A
#: character of Chinese, Japanese or Korean is one token.
CHARS_PER_TOKEN: Final = 4
ROW_TOKENS: Final = 3
#: The distance between sessions, in tokens: further than any feature looks.
SESSION_DISTANCE: Final = 10_000.0

#: A score is divided by this power of the passage's tokens: of two that are as relevant, the
#: shorter one leaves room for others.
COST_POWER: Final = 0.15

#: A value for each passage.
Values = Sequence[float]


@dataclass(frozen=True)
class Sessions:
    """The sessions of passages, and their positions in tokens."""

    #: The session of each passage, counted from 0.
    of: Sequence[int]
    #: Tokens of each passage.
    tokens: Sequence[float]
    #: The middle of each passage, in tokens from the start.
    middles: Sequence[float]
    #: Tokens of each session.
    totals: Sequence[float]
    _ranges: dict[float, tuple["array[int]", "array[int]"]] = field(default_factory=dict)

    def within(self, reach: float) -> tuple[Sequence[int], Sequence[int]]:
        """Return the first and the last of those at most ``reach`` tokens away, of each passage.

        As in slices, the first index is included and the last is not.
        """
        ranges = self._ranges.get(reach)
        if ranges is None:
            ranges = self._ranges[reach] = _find_ranges(self.middles, reach)
        return ranges

    def near(self, scores: Sequence[float], reaches: Iterable[float]) -> Iterator[list[float]]:
        """Yield for each reach the sum of the scores around each passage, which fade out there.

        The sum of score * (1 - distance / reach) is computed from the running sums of the scores
        and of score * middle.
        """
        sums = [0.0, *accumulate(scores)]
        moments = [0.0, *accumulate(map(mul, scores, self.middles))]
        middles, sums_after, moments_after = self.middles, sums[1:], moments[1:]
        for reach in reaches:
            starts, ends = self.within(reach)
            at_passages = zip(
                middles, sums, sums_after, moments, moments_after, starts, ends, strict=False
            )
            totals = [
                (before := sum_before - sums[start])
                + (after := sums[end] - sum_after)
                # the sum of score * distance, before the passage and after it
                - (
                    middle * (before - after)
                    + (moments[start] - moment_before)
                    + (moments[end] - moment_after)
                )
                / reach
                for middle, sum_before, sum_after, moment_before, moment_after, start, end in (
                    at_passages
                )
            ]
            yield [total if total > 0.0 else 0.0 for total in totals]


def _find_ranges(middles: Sequence[float], reach: float) -> tuple["array[int]", "array[int]"]:
    """Return what `Sessions.within` does; ``middles`` ascend, so that both ends only go on."""
    starts, ends = array("L"), array("L")
    start, end, count = 0, 0, len(middles)
    for middle in middles:
        low, high = middle - reach, middle + reach
        while middles[start] < low:
            start += 1
        starts.append(start)
        while end < count and middles[end] <= high:
            end += 1
        ends.append(end)
    return starts, ends


class _Texts:
    """The terms of texts, of one kind."""

    def __init__(self, counts: Sequence[Mapping[str, int]], lengths: Sequence[int]) -> None:
        self._counts = counts
        self._postings: dict[str, Sequence[tuple[int, int]]] = {}
        self._size = 0
        self.lengths: Final = lengths
        self.damping: Final = damp(lengths)

    @cached_property
    def terms(self) -> Set[str]:
        """Return the terms of all texts."""
        return frozenset().union(*self._counts)

    def find(self, terms: Iterable[str]) -> Postings:
        """Look terms up in the texts, each once."""
        return {term: self._find(term) for term in terms}

    def _find(self, term: str) -> Sequence[tuple[int, int]]:
        known = self._postings.get(term)
        if known is not None:
            return known
        found = [
            (index, counts[term]) for index, counts in enumerate(self._counts) if term in counts
        ]
        self._size += len(found) + 1
        if self._size > KEPT_POSTINGS * len(self._counts):
            self._postings, self._size = {}, len(found) + 1
        self._postings[term] = found
        return found


@dataclass(frozen=True)
class Corpus:
    """Analyzed passages, with those of their features that no question changes."""

    passages: Sequence[Passage]
    analyses: Sequence[Analysis]
    sessions: Sessions

    @cached_property
    def stems(self) -> _Texts:
        """Return the stems of the passages."""
        analyses = self.analyses
        return _Texts([each.stems for each in analyses], [each.stem_count for each in analyses])

    @cached_property
    def grams(self) -> _Texts:
        """Return the runs of characters within the words of the passages."""
        analyses = self.analyses
        return _Texts([each.grams for each in analyses], [each.gram_count for each in analyses])

    @cached_property
    def session_damping(self) -> Sequence[float]:
        """Return how the length of each session damps its scores."""
        lengths = [0] * len(self.sessions.totals)
        for session, length in zip(self.sessions.of, self.stems.lengths, strict=True):
            lengths[session] += length
        return damp(lengths)

    @cached_property
    def lengths(self) -> Values:
        """Return the logarithms of the lengths in median lengths."""
        tokens = self.sessions.tokens
        usual = median(tokens)
        return [min(max(math.log(size / usual), SHORTEST), LONGEST) for size in tokens]

    @cached_property
    def costs(self) -> Values:
        """Return what scores are divided by."""
        return [tokens**COST_POWER for tokens in self.sessions.tokens]

    @cached_property
    def asks(self) -> Values:
        """Return 1 for passages that end with a question mark."""
        return [float(passage.text.rstrip().endswith(("?", "？"))) for passage in self.passages]

    @cached_property
    def speakers(self) -> Sequence[tuple[int, frozenset[str]]]:
        """Return the words of names before a colon, with the indices of their passages."""
        openings = (passage.text[: SPEAKER_CHARS + 1].partition(":") for passage in self.passages)
        return [
            (index, frozenset(words(name)))
            for index, (name, colon, _) in enumerate(openings)
            if colon
        ]

    @cached_property
    def human(self) -> Values:
        """Return how far the others say more than the human, from 0 to 1, for the human's."""
        sizes: dict[bool, list[int]] = {True: [], False: []}
        for passage in self.passages:
            size = min(len(passage.text), ASYMMETRY_CHARS)
            sizes[passage.speaker is Role.HUMAN].append(size)
        if not (sizes[True] and sizes[False]):
            return [0.0] * len(self.passages)
        ratio = max(median(sizes[False]), 1) / max(median(sizes[True]), 1)
        share = min(max(math.log(ratio) / math.log(ASYMMETRY), 0.0), 1.0)
        return [share * (passage.speaker is Role.HUMAN) for passage in self.passages]

    @cached_property
    def names(self) -> Values:
        """Return how many names there are, from 0 to 1; in long sessions they count less."""
        return [
            min(analysis.names, MAX_NAMES) / MAX_NAMES * (1 - share)
            for analysis, share in zip(self.analyses, self.long, strict=True)
        ]

    @cached_property
    def long(self) -> Values:
        """Return how far each passage is in a long unbroken session, from 0 to 1."""
        low, high = map(math.log, LONG_SESSION)
        timed = any(passage.at for passage in self.passages)
        most = 1.0 if timed else UNTIMED_SHARE
        shares = [
            min(max((math.log(total) - low) / (high - low), 0.0), 1.0) * most
            for total in self.sessions.totals
        ]
        return [shares[session] for session in self.sessions.of]


def _identify(passages: Sequence[Passage], language: str) -> tuple[object, ...]:
    """Return what a corpus is kept by: the identities of its texts, speakers and times.

    They stay what they are, since the corpus has them. How similar a passage is to a question
    makes no difference.
    """
    texts, speakers, times, *_ = zip(*passages, strict=True)
    return (language, *map(id, texts), *map(id, speakers), *map(id, times))


@cached(
    LRUCache[tuple[object, ...], Corpus](
        MAX_PASSAGES, getsizeof=lambda corpus: len(corpus.passages)
    ),
    key=_identify,
    lock=Lock(),
)
def read_corpus(passages: Sequence[Passage], language: str) -> Corpus:
    """Analyze passages, given in their order, in a language; at least one is required."""
    analyses = [analyze(passage.text, language) for passage in passages]
    return Corpus(tuple(passages), analyses, split_sessions(passages))


def split_sessions(passages: Sequence[Passage]) -> Sessions:
    """Split passages, given in their order, at long breaks.

    A passage without a time belongs to the session around it.
    """
    of = [0]
    for one, other in pairwise(passages):
        is_break = one.at is not None and other.at is not None and other.at - one.at > SESSION_BREAK
        of.append(of[-1] + is_break)
    cjk = [cjk_chars(passage.text) for passage in passages]
    tokens = [
        chars + (len(passage.text) - chars) / CHARS_PER_TOKEN + ROW_TOKENS
        for chars, passage in zip(cjk, passages, strict=True)
    ]
    totals = [0.0] * (of[-1] + 1)
    for session, size, passage in zip(of, tokens, passages, strict=True):
        # one passage of a message: a long message makes no conversation
        totals[session] += 0 if passage.continues else size
    middles = [
        end - size / 2 + session * SESSION_DISTANCE
        for end, size, session in zip(accumulate(tokens), tokens, of, strict=True)
    ]
    return Sessions(of, tokens, middles, totals)
