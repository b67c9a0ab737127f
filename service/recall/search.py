"""Choose what to request of an index of terms, and rank the rows that it returns.

An index returns rows in no order of relevance, and a common word is in half of a long history. So
the rarest terms are requested alone, as long as the number of their rows is small, and common ones
in pairs. Everything here concerns one owner; terms are keys that a store makes of words.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, combinations, islice, zip_longest
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from service.recall.bm25 import idf

#: What sorts the rows of a history: an index, or a time with a number.
SortKey = TypeVar("SortKey", int, tuple[int, int])

#: The most rows that are requested of an index: reading and scoring them takes some milliseconds.
MAX_FOUND: Final = 2_000
#: The most terms that are requested alone, and the most common ones that are paired.
MAX_SINGLE_TERMS: Final = 24
MAX_PAIRED_TERMS: Final = 5
#: The largest distance of a row's neighbours, in rows, and the weight of a neighbour's terms.
NEIGHBOUR_DISTANCE: Final = 4
NEIGHBOUR_WEIGHT: Final = 0.5
#: The distances up to which rows around a hit are read, in printed tokens: first what is near, then
#: the rest, which for one hit follows what is near the next `NEAR_HITS`. As many rows then say more
#: of several conversations, and hardly less of one: bench/recall/README.md.
NEAR_TOKENS: Final = 40
CONTEXT_TOKENS: Final = 150
NEAR_HITS: Final = 10
#: All ranges are read at once, whatever their ranks, if they may be expected to have at most this
#: share of the rows to read.
WHOLE_SHARE: Final = 0.75
#: The rows before and after a hit that are read if it has no printed tokens, such as a tool result:
#: its call precedes it, and other results of that message may be between them. Any number of such
#: rows may have the same position in tokens.
ROWS_BEFORE: Final = 6
ROWS_AFTER: Final = 2
#: The rows before such a hit of which the last one with calls is read, too: a result of many
#: parallel calls has others before it.
ROWS_TO_CALL: Final = 20
#: Of a search for n rows, the best n / `ROWS_PER_HIT` hits are looked up.
ROWS_PER_HIT: Final = 2
#: The oldest rows of a span of time that may be hits for their time.
MAX_DATED: Final = 1_000


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """The number of an owner's rows, of those in the scope of a search, and of those per term."""

    rows: int
    scope: int
    #: The number of rows with a term, by the term's key.
    having: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Requests rows with any of the single terms, or with both terms of a pair."""

    alone: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


class RowPosition(NamedTuple):
    """The position of a row in its scope, in printed tokens."""

    #: Tokens of the scope up to the end of the row.
    total: int
    #: Tokens of the row.
    own: int


class TokenRange(NamedTuple):
    """The rows to read around a hit, by their positions; both ends are included."""

    first: int
    last: int
    #: Its place in the order in which ranges are read: of `near_rank`, or an odd one for what is
    #: further away from a hit. The parts of a range share one.
    rank: int


class Hit(NamedTuple):
    """A row that an index returned."""

    #: Its number in the order of arrival.
    sequence: int
    #: The terms that it has.
    terms: frozenset[int]


def choose_query(statistics: TermStatistics) -> IndexQuery:
    """Choose what to request, so that at most `MAX_FOUND` rows have any of the single terms."""
    having = statistics.having
    by_rarity = sorted(having, key=lambda term: (having[term], term))
    alone: list[int] = []
    remaining = MAX_FOUND
    for term in by_rarity[:MAX_SINGLE_TERMS]:
        remaining -= min(having[term], statistics.scope)
        if remaining < 0:
            break
        alone.append(term)
    common = by_rarity[len(alone) : len(alone) + MAX_PAIRED_TERMS]
    # the number of rows with both terms, as if they were independent
    pairs = [
        (one, other)
        for one, other in combinations(common, 2)
        if having[one] / statistics.rows * (having[other] / statistics.rows) * statistics.scope
        < MAX_FOUND
    ]
    return IndexQuery(tuple(alone), tuple(pairs))


def rank_hits(hits: Sequence[Hit], statistics: TermStatistics, limit: int) -> list[int]:
    """Return the numbers of the best rows, the best first.

    A row scores by the weights of its terms, and by a share of those of its neighbours.
    """
    weights = {term: idf(statistics.rows, rows) for term, rows in statistics.having.items()}
    ordered = sorted(hits, key=itemgetter(0))  # by their sequence
    scores: dict[int, float] = {}
    #: The same for many rows, as questions have few terms.
    by_terms: dict[tuple[Set[int], Set[int]], float] = {}
    first = last = 0
    for hit in ordered:
        while ordered[first].sequence < hit.sequence - NEIGHBOUR_DISTANCE:
            first += 1
        while last < len(ordered) and ordered[last].sequence <= hit.sequence + NEIGHBOUR_DISTANCE:
            last += 1
        nearby = hit.terms
        if last - first > 1:  # most hits of a long history have no other one nearby
            nearby = nearby.union(*[other.terms for other in ordered[first:last]])
        both = (hit.terms, nearby)
        if both not in by_terms:
            # always in the order of the weights, as a sum of floats depends on it
            by_terms[both] = sum(
                weight if term in hit.terms else NEIGHBOUR_WEIGHT * weight
                for term, weight in weights.items()
                if term in nearby
            )
        scores[hit.sequence] = by_terms[both]
    # of rows with equal scores the newer comes first
    return sorted(scores, key=lambda number: (scores[number], number), reverse=True)[:limit]


def most_hits(max_rows: int) -> int:
    """Return how many hits a search for rows looks up at most; at least one for any row."""
    return -(-max_rows // ROWS_PER_HIT)


def near_rank(hit: int) -> int:
    """Return the rank of what is near a hit, by the hit's place among the best."""
    return 2 * hit


def merge_hits(limit: int, *rankings: Sequence[int]) -> list[int]:
    """Return the best of rankings in turns, each row once; at most ``limit``."""
    merged = dict.fromkeys(chain.from_iterable(zip_longest(*rankings)))
    merged.pop(None, None)
    return list(islice(merged, limit))


def take_dated(spans: Sequence[Sequence[int]], ranked: Sequence[int], limit: int) -> list[int]:
    """Return rows of spans of time, as many of each, and half of ``limit`` in all.

    Of more rows, those that are ``ranked`` come first, then some from the whole span.
    """
    places = {number: place for place, number in enumerate(ranked)}
    most = max(limit // 2 // max(len(spans), 1), 1)
    taken: list[int] = []
    for span in spans:
        matching = sorted(filter(places.__contains__, span), key=places.__getitem__)[:most]
        others = [number for number in span if number not in places]
        step = max(-(-len(others) // max(most - len(matching), 1)), 1)
        taken += [*matching, *others[::step]][:most]
    return taken


def take_best(ranked: Iterable[tuple[int, SortKey]], limit: int) -> list[SortKey]:
    """Return the sort keys of at most ``limit`` rows around the best hits, once, newest first.

    They are given with the ranks of the hits that they are around.
    """
    best = islice(dict.fromkeys(key for _, key in sorted(ranked)), limit)
    return sorted(best, reverse=True)


def token_ranges(positions: Sequence[RowPosition], end: int) -> list[TokenRange]:
    """Return the ranges of positions to read around hits, in their order.

    ``positions`` are those of the hits, the best first; hits without tokens have no range. Ranges
    end at the position ``end``, and don't overlap: what is around two hits belongs to the one that
    is read first, as the number of rows to read is limited. A range may contain no row.
    """
    hits = [*enumerate(positions)]
    near = [(near_rank(hit), NEAR_TOKENS, position) for hit, position in hits]
    further = [
        (near_rank((hit + 1) * NEAR_HITS) + 1, CONTEXT_TOKENS, position) for hit, position in hits
    ]
    ranges: list[TokenRange] = []
    taken: list[tuple[int, int]] = []
    for rank, distance, position in sorted([*near, *further], key=itemgetter(0)):
        total, own = position
        if total > end or not own:
            continue
        last = total + distance
        free = list(_free_ranges(taken, total - own - distance + 1, last if last < end else end))
        ranges += [TokenRange(*part, rank) for part in free]
        for part in free:
            insort(taken, part)
    return ranges


def whole_ranges(positions: Sequence[RowPosition], end: int) -> list[TokenRange]:
    """Return what `token_ranges` covers, in as few ranges as possible; all have the rank 0."""
    hits = [position for position in positions if position.own and position.total <= end]
    whole: list[TokenRange] = []
    for total, own in sorted(hits):
        first, last = total - own - CONTEXT_TOKENS + 1, min(total + CONTEXT_TOKENS, end)
        if whole and first <= whole[-1].last + 1:
            first = whole.pop().first
        whole.append(TokenRange(first, last, 0))
    return whole


def _free_ranges(
    taken: Sequence[tuple[int, int]], first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are in none of the taken ranges, which are sorted."""
    index = max(bisect_left(taken, (first, first)) - 1, 0)
    for low, high in taken[index:]:
        if low > last:
            break
        if first < low:
            yield first, low - 1
        first = max(first, high + 1)
    if first <= last:
        yield first, last
