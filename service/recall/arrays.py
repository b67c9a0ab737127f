"""What `service.recall.columns.Lists` computes, with numpy: in the same order of operations."""

from collections.abc import Sequence
from math import fsum
from typing import Final, cast

import numpy as np

from service.recall.columns import Lists, Ranges, Values

_ZERO: Final = (0.0,)


class Arrays(Lists):
    """Computations in arrays."""

    @staticmethod
    def make(values: Sequence[float]) -> Values:
        """Return values as an array."""
        return cast("Values", np.asarray(values, dtype=float))

    @staticmethod
    def scale(values: Values) -> Values:
        """Divide by the largest value, so that the best has 1."""
        given = np.asarray(values)
        largest = given.max()
        return cast("Values", given / largest if largest > 0 else given)

    @staticmethod
    def add_weighted(weighted: Sequence[tuple[float, Values]], count: int) -> Values:
        """Return the sums of ``count`` values each times its weight."""
        scores = np.zeros(count)
        for weight, values in weighted:
            scores += weight * np.asarray(values)
        return cast("Values", scores)

    @staticmethod
    def add_centred(scores: Values, weight: float, values: Values, shares: Values) -> Values:
        """Add values, less their mean, times a weight and the share of each."""
        added = np.asarray(values)
        mean = fsum(added.tolist()) / len(added)
        centred = weight * (added - mean) * np.asarray(shares)
        return cast("Values", np.asarray(scores) + centred)

    @staticmethod
    def means_around(values: Values, radius: int) -> Values:
        """Return the mean of each value and the ``radius`` values on either side of it."""
        sums = np.concatenate((_ZERO, np.cumsum(values)))
        indices = np.arange(len(values))
        first = np.maximum(indices - radius, 0)
        last = np.minimum(indices + radius + 1, len(values))
        return cast("Values", (sums[last] - sums[first]) / (last - first))

    @staticmethod
    def round_ratios(values: Values, divisors: Values, units: int) -> list[float]:
        """Divide what values have more than the least one, rounded to units of 1 / ``units``."""
        scores = np.asarray(values)
        ratios = (scores - scores.min()) / np.asarray(divisors)
        rounded: list[float] = (np.floor(ratios * units + 0.5) / units).tolist()
        return rounded

    @staticmethod
    def find_ranges(positions: Values, reach: float, known: Ranges) -> Ranges:  # noqa: ARG004 - of lists
        """Return the range of the positions that are at most ``reach`` away from each."""
        places = np.asarray(positions)
        starts = places.searchsorted(places - reach)
        return cast("Ranges", (starts, places.searchsorted(places + reach, "right")))

    @staticmethod
    def add_around(
        values: Values, positions: Values, ranges: Sequence[tuple[float, Ranges]]
    ) -> list[Values]:
        """Return for each reach the sum of the values around each, which fade out there."""
        added, places = np.asarray(values), np.asarray(positions)
        sums = np.concatenate((_ZERO, added.cumsum()))
        moments = np.concatenate((_ZERO, (added * places).cumsum()))
        around: list[Values] = []
        for reach, (starts, ends) in ranges:
            first, last = np.asarray(starts), np.asarray(ends)
            before, after = sums[:-1] - sums[first], sums[last] - sums[1:]
            by_distance = places * (before - after)
            by_distance += moments[first] - moments[:-1]
            by_distance += moments[last] - moments[1:]
            totals = before + after - by_distance / reach
            around.append(cast("Values", np.maximum(totals, 0.0)))
        return around
