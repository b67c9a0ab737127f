"""Add to scores by words how similar rows are to the question by meaning, where that is known."""

from collections.abc import Sequence
from math import fsum, sqrt
from typing import Final

#: The weight of similarity relative to the score by words, both in standard deviations.
WEIGHT: Final = 0.4
#: What is added to it where no passage has any of the question's words: there words say nothing.
UNMATCHED_WEIGHT: Final = 1.2
#: The weight of the rows before and after a row, relative to its own similarity.
NEIGHBOUR_WEIGHT: Final = 0.5
#: The least deviation of scores by words: if no row has the question's words, they hardly differ.
LEAST_DEVIATION: Final = 1.5
#: Digits of a score, so that small differences between machines don't change a rank.
DIGITS: Final = 3


def add_similarity(
    scores: list[float], similarities: Sequence[float | None], unmatched: float = 0.0
) -> list[float]:
    """Return scores of rows, given in their order, raised by similarity.

    The weight grows with ``unmatched``, how little of the question any row has in words, up to 1.
    A row whose similarity is None counts as one of average similarity. Without any, scores stay as
    they are.
    """
    known = [value for value in similarities if value is not None]
    if not known:
        return scores
    average = fsum(known) / len(known)
    own = [average if value is None else value for value in similarities]
    around = standardize(
        [
            (before + after) / 2
            for before, after in zip([average, *own], [*own[1:], average], strict=False)
        ]
    )
    combined = [
        one + NEIGHBOUR_WEIGHT * other for one, other in zip(standardize(own), around, strict=True)
    ]
    weight = (WEIGHT + UNMATCHED_WEIGHT * unmatched) * max(_deviation(scores), LEAST_DEVIATION)
    pairs = zip(scores, standardize(combined), strict=True)
    return [round(score + weight * value, DIGITS) for score, value in pairs]


def standardize(values: Sequence[float]) -> list[float]:
    """Return how many standard deviations each value is above the mean."""
    mean, deviation = fsum(values) / len(values), _deviation(values) or 1.0
    return [(value - mean) / deviation for value in values]


def _deviation(values: Sequence[float]) -> float:
    mean = fsum(values) / len(values)
    return sqrt(fsum((value - mean) ** 2 for value in values) / len(values))
