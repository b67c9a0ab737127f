"""What `service.recall.corpus` computes around each passage, with numpy: equal to the last bit."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def find_ranges(middles: Sequence[float], reach: float) -> tuple[Any, Any]:
    """Return what `Sessions.within` does, as arrays."""
    positions = np.asarray(middles)
    starts = positions.searchsorted(positions - reach)
    return starts, positions.searchsorted(positions + reach, "right")


def add_around(
    scores: Sequence[float],
    middles: Sequence[float],
    ranges: Sequence[tuple[float, tuple[Sequence[int], Sequence[int]]]],
) -> list[list[float]]:
    """Return what `Sessions.near` yields, by the ranges of each reach."""
    values, positions = np.asarray(scores), np.asarray(middles)
    sums = np.concatenate(([0.0], values.cumsum()))
    moments = np.concatenate(([0.0], (values * positions).cumsum()))
    totals = []
    for reach, (starts, ends) in ranges:  # in the order of operations there
        first, last = np.asarray(starts), np.asarray(ends)
        before, after = sums[:-1] - sums[first], sums[last] - sums[1:]
        by_distance = positions * (before - after)
        by_distance += moments[first] - moments[:-1]
        by_distance += moments[last] - moments[1:]
        around = before + after - by_distance / reach
        totals.append(np.where(around > 0.0, around, 0.0).tolist())
    return totals
