"""Make metrics that bear our prefix."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX: Final = "contextbuilder_"
#: Seconds: from a small build to the longest that a request waits by default.
DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    """Return a counter; its name gets ``_total`` where it is written."""
    return Counter(f"{PREFIX}{name}", about, labels, registry=registry)


def histogram(
    registry: CollectorRegistry, name: str, about: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    """Return a histogram with these upper bounds."""
    return Histogram(f"{PREFIX}{name}", about, labels, registry=registry, buckets=buckets)
