"""What an index is asked for, and which of the rows that it gives tell most about a question.

An index gives rows in no order of worth, and a common word has half of a long history. So the
rarest terms are asked for alone, as long as all their rows together are few, and common ones in
pairs. Everything here is of one owner; terms are keys that a store makes of words.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

from service.recall.features import idf

#: Rows that an index is asked for at most: to read and score so many takes some milliseconds.
MAX_FOUND: Final = 2_000
#: Terms that are asked for alone at most, and common ones of which pairs are.
MAX_SINGLE_TERMS: Final = 24
MAX_PAIRED_TERMS: Final = 5
#: Rows in turn among which a row's neighbours are, and what their terms count for it.
NEIGHBOUR_DISTANCE: Final = 4
NEIGHBOUR_WEIGHT: Final = 0.5
#: How far around a row its neighbours are read, in printed tokens.
CONTEXT_TOKENS: Final = 150
#: Rows that are read at most for each one that is found.
ROWS_PER_HIT: Final = 4


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is looked for: rows older than the one with the id ``before``, and so many."""

    terms: Sequence[str]
    before: str
    max_rows: int


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """How many rows of an owner there are, of the scope that is asked, and with each term."""

    rows: int
    scope: int
    having: Mapping[int, int]

    def weight(self, term: int) -> float:
        """Return how telling a term is."""
        return idf(self.rows, self.having[term])


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Rows with any of these terms, or with both of a pair, are asked for."""

    alone: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


class RowPosition(NamedTuple):
    """Where a row stands: the tokens of its scope up to its end, and its own."""

    total: int
    own: int


class Hit(NamedTuple):
    """A row that an index has given: its number in the order of arrival, and what it has."""

    sequence: int
    terms: Set[int]


def choose_query(known: TermStatistics) -> IndexQuery:
    """Choose what to ask for, so that no more than so many rows are found."""
    alone: list[int] = []
    left = MAX_FOUND
    rarest = sorted(known.having, key=lambda term: (known.having[term], term))
    for term in rarest[:MAX_SINGLE_TERMS]:
        left -= min(known.having[term], known.scope)
        if left < 0:
            break
        alone.append(term)
    common = rarest[len(alone) : len(alone) + MAX_PAIRED_TERMS]
    pairs = combinations(common, 2)
    return IndexQuery(
        tuple(alone), tuple(pair for pair in pairs if _expected(pair, known) < MAX_FOUND)
    )


def _expected(pair: tuple[int, int], known: TermStatistics) -> float:
    """Return how many rows have both terms, if one says nothing of the other."""
    one, other = (known.having[term] / known.rows for term in pair)
    return one * other * known.scope


def rank_hits(hits: Sequence[Hit], known: TermStatistics, most: int) -> list[int]:
    """Return the numbers of the best rows, the best first; neighbours count for each other."""
    weights = {term: known.weight(term) for term in known.having}
    ordered = sorted(hits, key=lambda hit: hit.sequence)
    scores = {
        hit.sequence: _score(hit.terms, _around(ordered, place), weights)
        for place, hit in enumerate(ordered)
    }
    # of two that score alike the newer goes first
    return sorted(scores, key=lambda number: (scores[number], number), reverse=True)[:most]


def token_ranges(spots: Sequence[RowPosition], end: int) -> list[tuple[int, int]]:
    """Return the totals, first and last, between which these rows and their neighbours stand.

    None goes beyond the total ``end``. They don't overlap, and come in the order of ``spots``, the
    best first: what two rows reach is the better one's, as no more may be read than so many rows.
    Some may have no row.
    """
    found: list[tuple[int, int]] = []
    taken: list[tuple[int, int]] = []
    for spot in spots:
        if spot.total <= end:
            last = min(spot.total + CONTEXT_TOKENS, end)
            left = list(_left(taken, spot.total - spot.own - CONTEXT_TOKENS + 1, last))
            found += left
            for stretch in left:
                insort(taken, stretch)
    return found


def _left(taken: Sequence[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield what lies between two totals and in none of these stretches, which are in order."""
    place = max(bisect_left(taken, (first, first)) - 1, 0)
    for low, high in taken[place:]:
        if low > last:
            break
        if first < low:
            yield first, low - 1
        first = max(first, high + 1)
    if first <= last:
        yield first, last


def _around(ordered: Sequence[Hit], place: int) -> Set[int]:
    """Return the terms of the rows close by."""
    at = ordered[place].sequence
    near = ordered[max(place - NEIGHBOUR_DISTANCE, 0) : place + NEIGHBOUR_DISTANCE + 1]
    return frozenset().union(
        *(hit.terms for hit in near if abs(hit.sequence - at) <= NEIGHBOUR_DISTANCE)
    )


def _score(own: Set[int], around: Set[int], weights: Mapping[int, float]) -> float:
    # summed in one order, as sums of floats depend on it
    shares = (
        (1.0 if term in own else NEIGHBOUR_WEIGHT, term) for term in weights if term in around
    )
    return sum(share * weights[term] for share, term in shares)
