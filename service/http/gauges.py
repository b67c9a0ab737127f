"""What is not counted but looked up when somebody asks: the streams, and work in hand."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.errors import BusError
from service.observe.health import Check
from service.ports.bus import Bus
from service.ports.stream import Depth, Inbox

#: Seconds that the bus has to tell how much waits.
SECONDS: Final = 1.0


#: What a bus counts of the way in and of the way out.
_COUNTED: Final = (
    (
        "bus_resubscribes",
        "Times the request channel was lost and found: requests may be missing.",
    ),
    (
        "bus_messages_dropped",
        "Requests that came over the channel faster than they were taken.",
    ),
    (
        "replies_forbidden",
        "Answers to a list or stream that the worker's user may not write; told on the common "
        "channel instead.",
    ),
)

#: How full the streams are: `requests`, and `results` of the recorder.
_DEPTHS: Final = (
    ("stream_lag_messages", "Entries that no worker has read, of `requests` and of `results`."),
    ("stream_pending_messages", "Entries in work at any worker."),
    ("stream_oldest_pending_seconds", "Age of the oldest entry in work; 0 where there is none."),
)


class Watched(Collector):
    """Reads a worker's state into metrics; what the bus does not tell in time is left out."""

    def __init__(self, bus: Bus, in_flight: Callable[[], int]) -> None:
        self._bus = bus
        self._in_flight = in_flight
        self._inboxes: Mapping[str, Inbox] = {"requests": bus.requests, "results": bus.results}
        self._depths: dict[str, Depth] = {}
        self._checks: Sequence[Check] = ()

    def checked(self, checks: Sequence[Check]) -> None:
        """Note what was found of the worker's readiness."""
        self._checks = checks

    async def refresh(self) -> None:
        """Ask the bus, for `collect` can't wait."""
        self._depths = {}
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                for stream, inbox in self._inboxes.items():
                    self._depths[stream] = await inbox.depth()

    def collect(self) -> Iterator[Metric]:
        """Give what was last seen."""
        yield _gauge("build_in_flight", "Requests in work at this worker.", self._in_flight())
        for (name, about), value in zip(
            _COUNTED, (self._bus.resubscribed, self._bus.dropped, self._bus.forbidden), strict=True
        ):
            yield _counter(name, about, value)
        lag, pending, oldest = (_gauges(name, about) for name, about in _DEPTHS)
        for stream, depth in self._depths.items():
            if depth.lag is not None:
                lag.add_metric([stream], depth.lag)
            pending.add_metric([stream], depth.pending)
            oldest.add_metric([stream], depth.oldest_pending_seconds)
        yield from (lag, pending, oldest)
        checks = _gauges("check_ok", "Whether a check of readiness holds.", "check")
        for check in self._checks:
            checks.add_metric([check.name], check.ok)
        yield checks


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"contextbuilder_{name}", about, value)


def _gauges(name: str, about: str, label: str = "stream") -> GaugeMetricFamily:
    return GaugeMetricFamily(f"contextbuilder_{name}", about, labels=[label])


def _counter(name: str, about: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"contextbuilder_{name}", about, value)
