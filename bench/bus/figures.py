"""The keys of the benchmark: ratios within a round, CPU and waits, each the median of the rounds.

`README.md` in the folder above says what each of them is.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from bench.bus.fleets import Measured

#: Requests in flight where throughput is measured, and where the wait of a single one is.
MANY: Final = 64
ONE: Final = 1
#: Numbers of worker processes that are compared.
FLEETS: Final = (1, 2, 4)

#: The windows of a round by name.
Round = Mapping[str, Measured]


def figures(rounds: Sequence[Round], build_us: float) -> dict[str, Any]:
    """Return the figures of all rounds; ``build_us`` is the CPU of a build by itself."""
    of = _Medians(rounds)
    return {
        "ratio_streams_64": of.ratio("streams_usual", "raw_usual"),
        "ratio_pubsub_64": of.ratio("pubsub_usual", "raw_usual"),
        "ratio_streams_64_by_round": of.by_round("streams_usual", "raw_usual"),
        "rate": of.rate("streams_usual"),
        "rate_pubsub": of.rate("pubsub_usual"),
        "raw_rate": of.rate("raw_usual"),
        "caller_us": of.caller("raw_usual"),
        "lean_callers": {
            "ratio_streams_64": of.ratio("streams"),
            "ratio_pubsub_64": of.ratio("pubsub"),
            "ratio_streams_64_by_round": of.by_round("streams", "raw"),
            "rate": of.rate("streams"),
            "rate_pubsub": of.rate("pubsub"),
            "raw_rate": of.rate("raw"),
            "caller_us": of.caller("raw"),
        },
        "cpu_us_streams_64": of.cpu("streams"),
        "cpu_us_pubsub_64": of.cpu("pubsub"),
        "p50_ratio_streams_1": of.wait_ratio("streams_1", "raw_1"),
        "workers": {
            "1": of.fleet("streams"),
            **{str(number): of.fleet(f"workers_{number}") for number in FLEETS if number > 1},
        },
        "shared_connection": {
            "ratio_streams_64": of.ratio("streams_shared", "raw_shared"),
            "cpu_us_streams_64": of.cpu("streams_shared"),
            "raw_rate": of.rate("raw_shared"),
        },
        "builds": {
            "ratio_streams_64": of.ratio("builds", "raw_large"),
            "ratio_pubsub_64": of.ratio("builds_pubsub", "raw_large"),
            "rate": of.rate("builds"),
            "cpu_us": of.cpu("builds"),
            "build_us": round(build_us, 1),
            "cpu_us_less_build": round(of.cpu("builds") - build_us, 1),
        },
        "raw": {
            "cpu_us": of.cpu("raw"),
            "rate_large": of.rate("raw_large"),
            "cpu_us_large": of.cpu("raw_large"),
        },
        "p50_ms": {
            name: of.wait(name) for name in ("raw_1", "streams_1", "raw", "streams", "pubsub")
        },
    }


class _Medians:
    """Figures of all rounds; a ratio is taken within each round."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._rounds = rounds

    def ratio(self, name: str, raw: str = "raw") -> float:
        """Return the rate over that of an echo."""
        return self._middle(lambda each: _rate(each, name) / _rate(each, raw), 3)

    def by_round(self, name: str, raw: str) -> list[float]:
        """Return the rate over that of an echo, for each round."""
        return [round(_rate(each, name) / _rate(each, raw), 3) for each in self._rounds]

    def rate(self, name: str) -> float:
        """Return answers per second."""
        return self._middle(lambda each: _rate(each, name), 0)

    def cpu(self, name: str) -> float:
        """Return microseconds of CPU for an answer, of all processes of the fleet."""
        return self._middle(lambda each: each[name].cpu_us, 1)

    def caller(self, name: str) -> float:
        """Return microseconds of a caller's CPU for an answer."""
        return self._middle(lambda each: each[name].caller_us, 1)

    def wait(self, name: str) -> float:
        """Return the median wait for an answer, in milliseconds."""
        return self._middle(lambda each: _wait(each, name) * 1000, 3)

    def wait_ratio(self, name: str, raw: str) -> float:
        """Return the median wait over that for an echo."""
        return self._middle(lambda each: _wait(each, name) / _wait(each, raw), 2)

    def fleet(self, name: str) -> dict[str, float]:
        """Return the report on each number of workers."""
        return {"ratio": self.ratio(name), "rate": self.rate(name), "cpu_us": self.cpu(name)}

    def _middle(self, figure: Callable[[Round], float], digits: int) -> float:
        return round(median(map(figure, self._rounds)), digits)


def _rate(each: Round, name: str) -> float:
    return each[name].window.rate


def _wait(each: Round, name: str) -> float:
    return median(each[name].window.latencies)
