"""What is made of the rounds."""

import pytest

from bench.bus.figures import FLEETS, figures
from bench.bus.fleets import Measured
from bench.bus.load import Window

#: All windows of a round, with the rate of each in answers per second.
RATES = {
    "raw_usual": 100,
    "streams_usual": 75,
    "pubsub_usual": 60,
    "raw": 1000,
    "streams": 500,
    "pubsub": 400,
    "raw_1": 100,
    "streams_1": 20,
    "raw_shared": 2000,
    "streams_shared": 500,
    "raw_large": 800,
    "builds": 80,
    "builds_pubsub": 40,
    **{f"workers_{number}": 100 * number for number in FLEETS if number > 1},
}


def _measured(rate: float, *, slower: float = 1.0) -> Measured:
    """Return a second in which each answer took its share of it, and some of that in CPU."""
    answers = int(rate)
    window = Window(slower, [slower / rate] * answers)
    return Measured(window=window, cpu_seconds=answers * 0.0001, caller_seconds=answers * 0.00002)


def _round(slower: float = 1.0) -> dict[str, Measured]:
    return {name: _measured(rate, slower=slower) for name, rate in RATES.items()}


def test_ratios_are_taken_within_each_round() -> None:
    """A machine that is slower for a round changes no ratio, and rates by the median."""
    found = figures([_round(), _round(slower=5.0), _round(slower=2.0)], build_us=60.0)
    lean = found["lean_callers"]
    assert (lean["ratio_streams_64"], lean["ratio_pubsub_64"]) == (0.5, 0.4)
    assert lean["ratio_streams_64_by_round"] == [0.5, 0.5, 0.5]
    assert lean["raw_rate"] == 500
    assert found["p50_ratio_streams_1"] == 5.0
    assert found["workers"]["4"] == {"ratio": 0.4, "rate": 200, "cpu_us": 100.0}
    assert found["shared_connection"]["ratio_streams_64"] == 0.25


def test_each_kind_of_callers_has_an_echo_of_its_own() -> None:
    """What usual callers measure is compared with what they measure of the echo."""
    found = figures([_round(), _round()], build_us=60.0)
    assert (found["ratio_streams_64"], found["ratio_pubsub_64"]) == (0.75, 0.6)
    assert (found["rate"], found["raw_rate"]) == (75, 100)
    assert found["ratio_streams_64_by_round"] == [0.75, 0.75]
    assert found["caller_us"] == pytest.approx(20.0)


def test_builds_are_compared_with_an_echo_of_their_size() -> None:
    """Their baseline is the echo of large answers; the cost of a build is separate."""
    builds = figures([_round()], build_us=60.0)["builds"]
    assert (builds["ratio_streams_64"], builds["ratio_pubsub_64"]) == (0.1, 0.05)
    assert builds["cpu_us"] == pytest.approx(100.0)
    assert builds["cpu_us_less_build"] == pytest.approx(40.0)
