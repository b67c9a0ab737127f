"""Metrics that are read on each scrape: the streams, work in progress, and readiness."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.errors import BusError
from service.http.prometheus import PREFIX
from service.observe.health import Check
from service.ports.bus import Bus
from service.ports.stream import Depth, Inbox

#: Seconds that the bus may take to report its depths.
SECONDS: Final = 1.0

#: Attributes of the bus that count, with the name and description of each metric.
_COUNTERS: Final = (
    (
        "resubscribed",
        "bus_resubscribes",
        "Times the request channel was lost and subscribed to again: requests may be missing.",
    ),
    (
        "dropped",
        "bus_messages_dropped",
        "Requests that came over the channel faster than they were taken.",
    ),
    (
        "forbidden",
        "replies_forbidden",
        "Answers to a list or stream that the worker's user may not write; an error was sent on "
        "the common channel instead.",
    ),
)


class WorkerGauges(Collector):
    """Reads the state of a worker; what the bus doesn't report in time is left out."""

    def __init__(self, bus: Bus, in_flight: Callable[[], int]) -> None:
        self._bus = bus
        self._in_flight = in_flight
        self._inboxes: Mapping[str, Inbox] = {"requests": bus.requests, "results": bus.results}
        self._depths: dict[str, Depth] = {}
        self._checks: Sequence[Check] = ()

    async def refresh(self, checks: Sequence[Check]) -> None:
        """Note the checks of readiness and read the depths, since `collect` can't wait."""
        self._checks = checks
        self._depths = {}
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                for stream, inbox in self._inboxes.items():
                    self._depths[stream] = await inbox.depth()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of the last `refresh`."""
        yield GaugeMetricFamily(
            f"{PREFIX}build_in_flight", "Requests in work at this worker.", self._in_flight()
        )
        for attribute, name, about in _COUNTERS:
            yield CounterMetricFamily(f"{PREFIX}{name}", about, getattr(self._bus, attribute))
        yield from self._stream_gauges()
        checks = _gauge("check_ok", "Whether a check of readiness succeeds.", "check")
        for check in self._checks:
            checks.add_metric([check.name], check.ok)
        yield checks

    def _stream_gauges(self) -> Iterator[Metric]:
        lag = _gauge(
            "stream_lag_messages",
            "Entries that no worker has read, of `requests` and of `results`.",
            "stream",
        )
        pending = _gauge("stream_pending_messages", "Entries in work at any worker.", "stream")
        oldest = _gauge(
            "stream_oldest_pending_seconds",
            "Age of the oldest entry in work; 0 if there is none.",
            "stream",
        )
        for stream, depth in self._depths.items():
            if depth.lag is not None:
                lag.add_metric([stream], depth.lag)
            pending.add_metric([stream], depth.pending)
            oldest.add_metric([stream], depth.oldest_pending_seconds)
        yield from (lag, pending, oldest)


def _gauge(name: str, about: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", about, labels=[label])
