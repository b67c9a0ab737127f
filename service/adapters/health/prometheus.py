"""Counts and times of a worker, as Prometheus wants them."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Final, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from service.metrics import Burial, Duplicate, Stage

#: Seconds: from a small build to the longest that a request waits by default.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class PrometheusMetrics:
    """The `Metrics` of one worker, in a registry of its own.

    Labels take few values, all from the code. What is counted stands at 0 from the start where its
    labels are known, so that the first one shows as an increase.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        info = Info("contextbuilder_build", "The version.", registry=self.registry)
        info.info({"version": version("context-builder")})
        seconds = Histogram(
            "contextbuilder_build_duration_seconds",
            "How long the parts of a request took.",
            ["stage"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._stages = {stage: seconds.labels(stage) for stage in get_args(Stage)}
        self._outcomes = self._counter(
            "build_requests", "Requests that got an answer of their own.", "outcome"
        )
        self._outcomes.labels("success")
        duplicates = self._counter(
            "duplicates_suppressed", "Deliveries kept from a second answer.", "reason"
        )
        self._duplicates = _each(duplicates, get_args(Duplicate))
        burials = self._counter("dead_letters", "Entries sent to the dead letter.", "reason")
        self._burials = _each(burials, get_args(Burial))
        dropped = self._counter("reply_dropped", "Replies that nobody got.", "reason")
        self._unheard = dropped.labels("no_subscriber")
        self._events_lost = self._counter("events_lost", "Events that could not be told.")

    def took(self, stage: Stage, seconds: float) -> None:
        """Note how long a part of a request took."""
        self._stages[stage].observe(seconds)

    def answered(self, outcome: str) -> None:
        """Count a request that got an answer of its own: ``success``, or the error's code."""
        self._outcomes.labels(outcome).inc()

    def duplicate(self, kind: Duplicate) -> None:
        """Count a delivery that was kept from a second answer of its own."""
        self._duplicates[kind].inc()

    def unheard(self) -> None:
        """Count a reply on a channel that nobody was subscribed to."""
        self._unheard.inc()

    def buried(self, reason: Burial) -> None:
        """Count an entry that went to the dead letter."""
        self._burials[reason].inc()

    def event_lost(self) -> None:
        """Count an event that could not be told."""
        self._events_lost.inc()

    def text(self) -> bytes:
        """Write all of it in the text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"contextbuilder_{name}", about, labels, registry=self.registry)


def _each(counter: Counter, labels: tuple[str, ...]) -> Mapping[str, Counter]:
    return {label: counter.labels(label) for label in labels}
