"""What is made of pairs of windows with a page and without."""

from bench.bus.fleets import Measured
from bench.bus.load import Window
from bench.inspector.measuring import Pair, figures


def measured(rate: int, cpu_us: float) -> Measured:
    """Return a second of n answers."""
    window = Window(1.0, [1 / rate] * rate)
    return Measured(window=window, cpu_seconds=cpu_us * rate / 1e6, caller_seconds=0.1)


def test_ratios_are_taken_within_each_pair() -> None:
    """So a machine that is slower for a pair changes none."""
    pairs = [
        Pair(measured(950, 105.0), 940, measured(1000, 100.0)),
        Pair(measured(95, 210.0), 90, measured(100, 200.0)),
        Pair(measured(500, 400.0), 480, measured(1000, 200.0)),
    ]

    found = figures(pairs)

    assert found["throughput_ratio"] == 0.95
    assert found["throughput_ratio_by_pair"] == [0.95, 0.95, 0.5]
    assert found["cpu_ratio"] == 1.05
    assert (found["rate"], found["cpu_us"], found["cpu_us_watched"]) == (1000, 200.0, 210.0)
    assert found["builds_shown"] == [940, 90, 480]
