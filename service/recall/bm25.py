"""BM25: how much texts have of a question's terms, and how rare these are."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

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
