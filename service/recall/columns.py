"""Compute with columns, which have a value for each passage: as lists, or as numpy's arrays.

Both give the same numbers, to the last bit, so that machines with and without numpy rank alike.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from math import fsum
from operator import mul

#: A value for each passage, session or position.
Values = Sequence[float]
#: For each passage the first and the last of those in a range around it; as in slices, the first
#: index is included and the last is not.
Ranges = tuple[Sequence[int], Sequence[int]]

#: Passages from which on arrays are faster.
MANY_PASSAGES = 200


class Lists:
    """Computations in lists; `service.recall.arrays.Arrays` has the same names."""

    @staticmethod
    def make(values: Sequence[float]) -> Values:
        """Return values as the other functions take them."""
        return values

    @staticmethod
    def scale(values: Values) -> Values:
        """Divide by the largest value, so that the best has 1."""
        largest = max(values)
        return [value / largest for value in values] if largest > 0 else values

    @staticmethod
    def add_weighted(weighted: Sequence[tuple[float, Values]], count: int) -> Values:
        """Return the sums of ``count`` values each times its weight."""
        scores = [0.0] * count
        nothing = (0.0, scores)
        rest = [(weight, values) for weight, values in weighted if any(values)]
        while rest:  # four at once, which takes half the time
            four, rest = [*rest[:4], nothing, nothing, nothing], rest[4:]
            (a, first), (b, second), (c, third), (d, fourth) = four[:4]
            scores = [
                score + a * one + b * two + c * three + d * other
                for score, one, two, three, other in zip(
                    scores, first, second, third, fourth, strict=True
                )
            ]
        return scores

    @staticmethod
    def add_centred(scores: Values, weight: float, values: Values, shares: Values) -> Values:
        """Add values, less their mean, times a weight and the share of each."""
        mean = fsum(values) / len(values)
        triples = zip(scores, values, shares, strict=True)
        return [score + weight * (value - mean) * share for score, value, share in triples]

    @staticmethod
    def means_around(values: Values, radius: int) -> Values:
        """Return the mean of each value and the ``radius`` values on either side of it."""
        sums = [0.0, *accumulate(values)]
        width, count = 2 * radius + 1, len(values)

        def mean(index: int) -> float:
            first, last = max(index - radius, 0), min(index + radius + 1, count)
            return (sums[last] - sums[first]) / (last - first)

        whole = [(last - first) / width for first, last in zip(sums, sums[width:], strict=False)]
        head = map(mean, range(min(radius, count)))
        tail = map(mean, range(max(count - radius, radius), count))
        return [*head, *whole, *tail]

    @staticmethod
    def round_ratios(values: Values, divisors: Values, units: int) -> list[float]:
        """Divide what values have more than the least one, rounded to units of 1 / ``units``."""
        least = min(values)
        pairs = zip(values, divisors, strict=True)
        # none is negative, and `round` takes three times as long
        return [int((value - least) / divisor * units + 0.5) / units for value, divisor in pairs]

    @staticmethod
    def find_ranges(positions: Values, reach: float, known: Ranges) -> Ranges:
        """Return the range of the positions that are at most ``reach`` away from each.

        Positions ascend. ``known`` are the ranges that the first of them had.
        """
        before, count = len(known[0]), len(positions)
        starts = array("L", known[0])
        start = starts[-1] if starts else 0
        for position in positions[before:]:
            low = position - reach
            while positions[start] < low:
                start += 1
            starts.append(start)
        # a range that ended with the last position may go on
        ends = array("L", known[1][: bisect_left(known[1], before)])
        end = ends[-1] if ends else 0
        for position in positions[len(ends) :]:
            high = position + reach
            while end < count and positions[end] <= high:
                end += 1
            ends.append(end)
        return starts, ends

    @staticmethod
    def add_around(
        values: Values, positions: Values, ranges: Sequence[tuple[float, Ranges]]
    ) -> list[Values]:
        """Return for each reach the sum of the values around each, which fade out there.

        The sum of value * (1 - distance / reach) is computed from the running sums of the values
        and of value * position.
        """
        sums = [0.0, *accumulate(values)]
        moments = [0.0, *accumulate(map(mul, values, positions))]
        sums_after, moments_after = sums[1:], moments[1:]
        around: list[Values] = []
        for reach, (starts, ends) in ranges:
            places = zip(
                positions, sums, sums_after, moments, moments_after, starts, ends, strict=False
            )
            totals = [
                (before := sum_before - sums[start])
                + (after := sums[end] - sum_after)
                # the sum of value * distance, before the position and after it
                - (
                    position * (before - after)
                    + (moments[start] - moment_before)
                    + (moments[end] - moment_after)
                )
                / reach
                for position, sum_before, sum_after, moment_before, moment_after, start, end in (
                    places
                )
            ]
            around.append([total if total > 0.0 else 0.0 for total in totals])
        return around


@cache
def has_numpy() -> bool:
    """Return whether numpy is installed."""
    return find_spec("numpy") is not None


def choose_columns(count: int) -> type[Lists]:
    """Return what computes fastest with columns of ``count`` values."""
    if count < MANY_PASSAGES or not has_numpy():
        return Lists
    from service.recall.arrays import Arrays  # noqa: PLC0415 - loads numpy

    return Arrays
