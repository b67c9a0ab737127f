"""Make metrics that bear our prefix."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX: Final = "contextbuilder_"


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    """Return a counter; its name gets ``_total`` where it is written."""
    return Counter(f"{PREFIX}{name}", about, labels, registry=registry)


def histogram(
    registry: CollectorRegistry, name: str, about: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    """Return a histogram with these upper bounds."""
    return Histogram(f"{PREFIX}{name}", about, labels, registry=registry, buckets=buckets)
