"""What was found, in figures."""

import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Times that questions are drawn again, to estimate the confidence of a difference.
DRAWS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Found:
    """What one context has of the messages that answer its question."""

    category: str
    #: The share of them that is there.
    share: float
    #: Milliseconds of the build; None where nothing was built.
    ms: float | None = None
    #: The share of the passages that answer; None where whole messages do.
    answered: float | None = None


def figures(found: Sequence[Found]) -> dict[str, Any]:
    """Return the averages over all questions, and over those of each category.

    A category with a slash, such as ``ja/one``, is also part of what is before it.
    """
    by_category: dict[str, list[float]] = defaultdict(list)
    for each in found:
        for name in {each.category, each.category.partition("/")[0]}:
            by_category[name].append(each.share)
    reported: dict[str, Any] = {
        "recall": round(statistics.fmean(each.share for each in found), 4),
        "all_found": round(statistics.fmean(each.share == 1 for each in found), 4),
        "n": len(found),
        "by_category": {
            name: round(statistics.fmean(shares), 4) for name, shares in sorted(by_category.items())
        },
    }
    answered = [each.answered for each in found if each.answered is not None]
    if answered:
        reported["answered"] = round(statistics.fmean(answered), 4)
    times = sorted(each.ms for each in found if each.ms is not None)
    if times:
        reported["p50_ms"] = round(statistics.median(times), 2)
        reported["p95_ms"] = round(times[int(0.95 * len(times))], 2)
    return reported


def beside_best(found: Sequence[Found], baselines: Mapping[str, Sequence[Found]]) -> dict[str, Any]:
    """Return how much more is found than by the best of some, with an interval of 95 %.

    Questions are drawn with replacement, the same for both.
    """
    best = max(baselines, key=lambda name: statistics.fmean(f.share for f in baselines[name]))
    pairs = zip(found, baselines[best], strict=True)
    differences = [one.share - other.share for one, other in pairs]
    draw = random.Random(1)  # noqa: S311 - to be repeatable, not secret
    means = sorted(
        statistics.fmean(draw.choices(differences, k=len(differences))) for _ in range(DRAWS)
    )
    low, high = means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS)]
    return {
        "best_baseline": best,
        "minus_best": round(statistics.fmean(differences), 4),
        "interval": [round(low, 4), round(high, 4)],
    }
