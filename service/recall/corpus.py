"""The data on passages that ranking needs for any question; it is kept between builds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import accumulate, compress, islice
from operator import not_
from statistics import median
from threading import Lock
from typing import Final

from cachetools import LRUCache

from formatters.model import Passage, Role
from service.recall.bm25 import Postings, damp, find_postings, index_texts
from service.recall.columns import Lists, Ranges, Values, choose_columns
from service.recall.terms import Analysis, analyze_all

#: The passages of all corpora that are kept; with its analysis, one of 150 characters takes about
#: 9 KB. A longer one counts several times.
MAX_PASSAGES: Final = 20_000
COUNTED_CHARS: Final = 150

#: Searches of texts before an index of all their terms is made.
SEARCHES_BEFORE_INDEX: Final = 2

#: How much longer the others' passages are than the human's where what the human says counts fully:
#: an assistant's long answers have many words, and what they answer says what matters.
ASYMMETRY: Final = 2.5
#: Characters of a longer passage that count for this.
ASYMMETRY_CHARS: Final = 500
#: Tokens above which a session starts to count as long, and at which it fully does.
LONG_SESSION: Final = (1_500, 8_000)

#: How far passages without times count as in a long session: their breaks are unknown.
UNTIMED_SHARE: Final = 0.5

#: Limits of the logarithm of a passage's length in median lengths: twice the median makes a
#: difference, ten times no more than three times.
SHORTEST, LONGEST = -1.5, 1.0

#: A break that ends a session.
SESSION_BREAK: Final = timedelta(hours=1)
#: The distance between sessions, in tokens: further than any feature looks.
SESSION_DISTANCE: Final = 10_000.0


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
    #: What `within` returned, by reach; it may be of the first passages only.
    ranges: dict[float, Ranges] = field(default_factory=dict)

    @cached_property
    def columns(self) -> type[Lists]:
        """Return what computes with the values of passages."""
        return choose_columns(len(self.middles))

    @cached_property
    def positions(self) -> Values:
        """Return the middles, to compute with."""
        return self.columns.make(self.middles)

    def within(self, reach: float) -> Ranges:
        """Return the first and the last of those at most ``reach`` tokens away, of each passage."""
        ranges = self.ranges.get(reach, ((), ()))
        if len(ranges[0]) < len(self.middles):
            ranges = self.ranges[reach] = self.columns.find_ranges(self.positions, reach, ranges)
        return ranges

    def near(self, scores: Values, reaches: Iterable[float]) -> list[Values]:
        """Return for each reach the sum of the scores around each passage, which fade out there."""
        ranges = [(reach, self.within(reach)) for reach in reaches]
        return self.columns.add_around(scores, self.positions, ranges)


NO_SESSIONS: Final = Sessions((), (), (), ())


class _Texts:
    """The terms of texts, of one kind.

    An index of all terms takes as long as some searches without it, so it is made for texts that
    were searched before: `SEARCHES_BEFORE_INDEX` times.
    """

    def __init__(
        self,
        counts: Sequence[Mapping[str, int]],
        lengths: Sequence[int],
        index: Postings | None = None,
        searches: int = 0,
    ) -> None:
        self._counts, self._index, self._searches = counts, index, searches
        self.lengths: Final = lengths

    def extended(self, counts: Sequence[Mapping[str, int]], lengths: Sequence[int]) -> "_Texts":
        """Return these texts and more, with an index if these have one."""
        index = self._index
        if index is not None:
            added = index_texts(counts, len(self._counts))
            index = {**index, **{term: [*index.get(term, ()), *added[term]] for term in added}}
        return _Texts([*self._counts, *counts], [*self.lengths, *lengths], index, self._searches)

    @cached_property
    def damping(self) -> Sequence[float]:
        """Return how the length of each text damps its scores."""
        return damp(self.lengths)

    def find(self, terms: Iterable[str]) -> Postings:
        """Look the terms of a question up."""
        if self._index is None and self._searches >= SEARCHES_BEFORE_INDEX:
            self._index = index_texts(self._counts)
        self._searches += 1
        index = self._index
        if index is None:
            return find_postings(terms, self._counts)
        return {term: index.get(term, ()) for term in terms}


@dataclass(frozen=True)
class Corpus:
    """Analyzed passages, with those of their features that no question changes."""

    passages: Sequence[Passage]
    analyses: Sequence[Analysis]
    sessions: Sessions
    #: The stems of the passages, and the runs of characters within their words.
    stems: _Texts
    grams: _Texts

    @property
    def columns(self) -> type[Lists]:
        """Return what computes with the values of passages."""
        return self.sessions.columns

    @cached_property
    def session_damping(self) -> Sequence[float]:
        """Return how the length of each session damps its scores."""
        return self._damp_groups(self.sessions.of)

    @cached_property
    def continued_share(self) -> float:
        """Return the share of passages that continue a long message."""
        return sum([passage.continues for passage in self.passages]) / len(self.passages)

    @cached_property
    def messages(self) -> Sequence[int]:
        """Return the message of each passage, counted from 0."""
        return [*accumulate([not each.continues for each in self.passages[1:]], initial=0)]

    @cached_property
    def message_damping(self) -> Sequence[float]:
        """Return how the length of each whole message damps its scores."""
        return self._damp_groups(self.messages)

    def _damp_groups(self, group_of: Sequence[int]) -> Sequence[float]:
        lengths = [0] * (group_of[-1] + 1)
        for group, length in zip(group_of, self.stems.lengths, strict=True):
            lengths[group] += length
        return damp(lengths)

    @cached_property
    def lengths(self) -> Values:
        """Return the logarithms of the lengths in median lengths."""
        tokens, low, high = self.sessions.tokens, SHORTEST, LONGEST
        usual = median(tokens)
        logarithms = [math.log(size / usual) for size in tokens]
        limited = [low if each < low else high if each > high else each for each in logarithms]
        return self.columns.make(limited)

    @cached_property
    def costs(self) -> Values:
        """Return what scores are divided by."""
        return self.columns.make([analysis.cost for analysis in self.analyses])

    @cached_property
    def asks(self) -> Values:
        """Return 1 for passages that end with a question mark."""
        return self.columns.make([analysis.asks for analysis in self.analyses])

    @cached_property
    def speakers(self) -> Sequence[tuple[int, frozenset[str]]]:
        """Return the words of names before a colon, with the indices of their passages."""
        return [
            (index, analysis.speaker)
            for index, analysis in enumerate(self.analyses)
            if analysis.speaker is not None
        ]

    @cached_property
    def human(self) -> Values:
        """Return how far the others say more than the human, from 0 to 1, for the human's."""
        human, most = Role.HUMAN, ASYMMETRY_CHARS  # looked up once, as it takes as long as all else
        own = [passage.speaker is human for passage in self.passages]
        if not any(own) or all(own):
            return self.columns.make([0.0] * len(own))
        sizes = [len(passage.text) for passage in self.passages]
        sizes = [size if size < most else most for size in sizes]
        of_others = max(median(compress(sizes, map(not_, own))), 1)
        ratio = of_others / max(median(compress(sizes, own)), 1)
        share = min(max(math.log(ratio) / math.log(ASYMMETRY), 0.0), 1.0)
        return self.columns.make([share * is_own for is_own in own])

    @cached_property
    def names(self) -> Values:
        """Return how many names there are, from 0 to 1; in long sessions they count less."""
        pairs = zip(self.analyses, self._long_shares, strict=True)
        return self.columns.make([analysis.names * (1 - share) for analysis, share in pairs])

    @cached_property
    def long(self) -> Values:
        """Return how far each passage is in a long unbroken session, from 0 to 1."""
        return self.columns.make(self._long_shares)

    @cached_property
    def has_long(self) -> bool:
        """Return whether a passage is in a session that counts as long."""
        return any(self._long_shares)

    @cached_property
    def _long_shares(self) -> Sequence[float]:
        low, high = map(math.log, LONG_SESSION)
        timed = any(passage.at for passage in self.passages)
        most = 1.0 if timed else UNTIMED_SHARE
        shares = [
            # a session of parts of a message alone has no tokens
            min(max((math.log(max(total, 1.0)) - low) / (high - low), 0.0), 1.0) * most
            for total in self.sessions.totals
        ]
        return [shares[session] for session in self.sessions.of]


def split_sessions(
    passages: Sequence[Passage], tokens: Sequence[float], known: Sessions = NO_SESSIONS
) -> Sessions:
    """Split passages, given in their order with their tokens, at long breaks.

    A passage without a time belongs to the session around it. ``known`` are the sessions of the
    first of the passages.
    """
    before, ends = len(known.of), accumulate(tokens)
    of, middles, totals = [*known.of], [*known.middles], [*known.totals]
    session = max(len(totals) - 1, 0)
    last = passages[before - 1].at if before else None
    for passage, size, end in zip(
        passages[before:], tokens[before:], islice(ends, before, None), strict=True
    ):
        at = passage.at
        if at is not None and last is not None and at - last > SESSION_BREAK:
            session += 1
        last = at
        if session == len(totals):
            totals.append(0.0)
        if not passage.continues:  # a long message makes no conversation
            totals[session] += size
        of.append(session)
        middles.append(end - size / 2 + session * SESSION_DISTANCE)
    return Sessions(of, tokens, middles, totals, known.ranges.copy())


_NOTHING: Final = Corpus((), (), NO_SESSIONS, _Texts((), ()), _Texts((), ()))


def _size(corpus: Corpus) -> int:
    return sum([1 + len(passage.text) // COUNTED_CHARS for passage in corpus.passages])


#: By language, and by the texts and times of the first two passages, which stay when a history
#: grows.
_CORPORA: Final = LRUCache[tuple[object, ...], Corpus](MAX_PASSAGES, getsizeof=_size)
_LOCK: Final = Lock()


def read_corpus(passages: Sequence[Passage], language: str) -> Corpus:
    """Analyze passages, given in their order, in a language; at least one is required.

    A corpus is kept, and extended by passages that are added to its end.
    """
    key = (language, *[(passage.text, passage.at) for passage in passages[:2]])
    with _LOCK:
        known = _CORPORA.get(key, _NOTHING)
    if not _are_alike(tuple(passages[: len(known.passages)]), known.passages):
        known = _NOTHING
    more = analyze_all([each.text for each in passages[len(known.passages) :]], language)
    if not more:
        return known
    analyses = [*known.analyses, *more]
    tokens = [each.tokens for each in analyses]
    corpus = Corpus(
        passages=tuple(passages),
        analyses=analyses,
        sessions=split_sessions(passages, tokens, known.sessions),
        stems=known.stems.extended([a.stems for a in more], [a.stem_count for a in more]),
        grams=known.grams.extended([a.grams for a in more], [a.gram_count for a in more]),
    )
    with _LOCK, suppress(ValueError):  # larger than the whole cache
        _CORPORA[key] = corpus
    return corpus


def _are_alike(some: Sequence[Passage], others: Sequence[Passage]) -> bool:
    """Return whether passages are equal, except for their similarity to a question."""
    if some == others:  # mostly without looking into them
        return True
    return len(some) == len(others) and all(
        one[:3] == other[:3] and one.continues == other.continues
        for one, other in zip(some, others, strict=True)
    )
