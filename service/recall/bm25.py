"""Score texts for a query by BM25, and what the scores need: postings and the rarity of terms."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

#: The values of Lucene's authors for short texts (Kamphuis et al., "Which BM25 do you mean?").
K1: Final = 0.9
B: Final = 0.4

#: The texts that have a term, ascending, with the number of times.
TermPostings = Sequence[tuple[int, int]]
#: The same by the term.
Postings = Mapping[str, TermPostings]


def index_texts(texts: Sequence[Mapping[str, int]], start: int = 0) -> Postings:
    """Return the postings of all terms of texts, given as counts; the first text is ``start``."""
    postings = defaultdict[str, list[tuple[int, int]]](list)
    for index, counts in enumerate(texts, start):
        # the same tuple for each term with a count, which takes less memory
        pairs = {count: (index, count) for count in counts.values()}
        for term, count in counts.items():
            postings[term].append(pairs[count])
    return postings


def find_postings(terms: Iterable[str], texts: Sequence[Mapping[str, int]]) -> Postings:
    """Look terms up in the term counts of texts."""
    postings: dict[str, list[tuple[int, int]]] = {term: [] for term in terms}
    wanted = postings.keys()
    for index, counts in enumerate(texts):
        # the order of this set doesn't matter: each term has a list of its own
        for term in wanted & counts.keys():
            postings[term].append((index, counts[term]))
    return postings


def add_postings(postings: Postings, group_of: Sequence[int]) -> Postings:
    """Add the postings of texts up to those of their groups, such as sessions."""
    added = {}
    for term, in_texts in postings.items():
        counts: dict[int, int] = {}
        for index, count in in_texts:
            group = group_of[index]
            counts[group] = counts.get(group, 0) + count
        added[term] = list(counts.items())
    return added


def idf(texts: int, having: int) -> float:
    """Return the rarity of a term that ``having`` of all texts have; never below 0."""
    return math.log(1 + (texts - having + 0.5) / (having + 0.5))


def bm25(query: Mapping[str, float], postings: Postings, lengths: Sequence[int]) -> list[float]:
    """Score texts of these lengths, in terms, by the weighted terms of a query."""
    return bm25_damped(query, postings, damp(lengths))


def damp(lengths: Sequence[int]) -> list[float]:
    """Return how far its length damps the scores of each text."""
    average = sum(lengths) / len(lengths) or 1.0
    return [K1 * (1 - B + B * length / average) for length in lengths]


def bm25_damped(
    query: Mapping[str, float], postings: Postings, damping: Sequence[float]
) -> list[float]:
    """Score texts as `bm25` does, by what `damp` returned for their lengths."""
    scores = [0.0] * len(damping)
    for term, weight in query.items():
        found = postings[term]
        rarity = weight * idf(len(damping), len(found)) * (K1 + 1)
        for index, count in found:
            scores[index] += rarity * count / (count + damping[index])
    return scores
