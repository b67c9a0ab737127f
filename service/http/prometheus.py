"""The metrics of a worker for Prometheus: its `Metrics`, and what is read on each scrape."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Final, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from service.errors import CODES, BusError
from service.observe import metrics
from service.observe.readiness import Check
from service.ports.bus import Bus, Depth, Inbox
from service.wire.response import COUNTS

PREFIX: Final = "contextbuilder_"
#: Seconds: from a small build to the longest that a request waits by default.
DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
#: Tokens: from a word to the largest windows there are.
TOKENS: Final = (16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
#: Closer together at the top: a context that is nearly full matters more than an empty one.
RATIOS: Final = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
#: Models with a label of their own: the tables have hundreds, and a caller may name them all.
MODELS: Final = 32


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, or a histogram if it has buckets."""

    name: str
    about: str
    labels: tuple[str, ...] = ()
    #: The values of its label, if they are known: they are exported from the start, at 0, so that
    #: the first event shows as an increase.
    values: tuple[str, ...] = ()
    #: Upper bounds.
    buckets: tuple[float, ...] = ()


#: The name of a counter gets ``_total`` in the text format.
METRICS: Final = (
    Metric(
        "build_duration_seconds",
        "Time of a stage of a request: waiting in the stream (`queue`), the whole build (`build`) "
        "with its parts `gather`, `fit`, `recall` and `record`, and sending the response (`send`).",
        labels=("stage",),
        values=get_args(metrics.Part),
        buckets=DURATIONS,
    ),
    Metric(
        "history_fetch_duration_seconds",
        "Time to read an owner's history, which is a part of `gather`. `backend` is the scheme of "
        "`store.url`.",
        labels=("backend",),
        buckets=DURATIONS,
    ),
    Metric(
        "build_requests",
        "Requests that got their first answer. `outcome` is `success` or the code of the error.",
        labels=("outcome",),
        values=("success", *(code for code, error in CODES.items() if error.on_the_wire)),
    ),
    Metric(
        "context_utilization_ratio",
        "The tokens of a context divided by the tokens available, from 0 to 1. `model` is a name "
        "in the built-in table of models or in `budget.model_limits`. It is `none` for requests "
        "without a model, and `other` for all models after the first 32.",
        labels=("model",),
        buckets=RATIOS,
    ),
    Metric(
        "context_tokens",
        "Tokens of each block of a context. `block` is the block's tag, `tools` for the array of "
        "tools, or `custom` for blocks that a request brings.",
        labels=("block",),
        buckets=TOKENS,
    ),
    Metric(
        "blocks_dropped",
        "Blocks, except those with history, that were left out (`block_dropped`) or shortened "
        "(`block_shortened`) to fit the budget.",
        labels=("block", "reason"),
    ),
    Metric(
        "candidates",
        "Rows of history, and messages of the current run (input, model calls, tool results). "
        "`decision` is the outcome, such as `kept`, `annotated` or `dropped`, or "
        "`not_read` for rows that the build didn't read.",
        labels=("decision",),
        values=(*COUNTS, "not_read"),
    ),
    Metric(
        "tokens_saved",
        "Tokens of history that a build read but didn't send, since the strategy left out, "
        "shortened or cleared messages.",
        labels=("strategy",),
    ),
    Metric(
        "rows_without_vector",
        "Rows that `recall.semantic` ranked by words alone, since they had no vector yet. The "
        "number grows if rows are stored faster than they are embedded.",
    ),
    Metric(
        "duplicates_suppressed",
        "Deliveries that got no new answer. Either the stored answer was sent again (`stored`), or "
        "nothing was sent since another worker had claimed the delivery (`lease_lost`).",
        labels=("reason",),
        values=("stored", "lease_lost"),
    ),
    Metric(
        "dead_letters",
        "Entries sent to the dead-letter stream. `reason` is `unreadable` (the sender is unknown), "
        "`deliveries` (delivered too often), or `result` (not a row that the store accepts).",
        labels=("reason",),
        values=("unreadable", "deliveries", "result"),
    ),
    Metric(
        "reply_dropped",
        "Replies sent to a channel without subscribers (`no_subscriber`).",
        labels=("reason",),
        values=("no_subscriber",),
    ),
    Metric(
        "rows_not_stored",
        "Rows that were not stored: inputs of requests (`input`) and rows of other services "
        "(`result`). Either another row has the same id, or the store was unavailable and "
        "`gather.degrade_history` is on.",
        labels=("kind",),
        values=("input", "result"),
    ),
    Metric("events_lost", "Events that could not be published."),
    Metric(
        "summary_requests",
        "Summaries that builds requested. `outcome` is `made`, `failed`, `postponed` (too many "
        "were waiting), `not_needed` (nothing to summarise), `busy` (another worker is making "
        "the summary) or `overtaken` (the history changed, or another worker was faster).",
        labels=("outcome",),
        values=("made", "not_needed", "busy", "overtaken", "postponed", "failed"),
    ),
    Metric(
        "config_reloads",
        "Reloads of changed prompt files: `reloaded` or `failed`. A file that can't be used counts "
        "as `failed` at each check.",
        labels=("result",),
        values=("reloaded", "failed"),
    ),
    Metric(
        "tool_refresh",
        "Queries for the tools of a server of `tools.mcp`: `changed`, `unchanged` or `failed`.",
        labels=("source", "outcome"),
    ),
    Metric(
        "http_requests",
        "Requests to the HTTP interface. `route` is the template of the path, `page` for files of "
        "the inspector, or `other` for unknown paths and requests that were refused before "
        "routing. `status` is a class such as `2xx`, or `none` if the caller disconnected first.",
        labels=("route", "method", "status"),
    ),
    Metric(
        "http_request_duration_seconds",
        "Time until the answer to an HTTP request begins.",
        labels=("route",),
        buckets=DURATIONS,
    ),
)


class PrometheusMetrics(metrics.Metrics):
    """The `Metrics` of one worker, in a registry of its own.

    Labels have few values, all of them from the code or the configuration.
    """

    def __init__(self, store: str) -> None:
        """Create all metrics; ``store`` is the scheme of the store's URL, which is a label."""
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        info = Info(f"{PREFIX}build", "1, with the version of the service.", registry=self.registry)
        info.info({"version": version("ctxb")})
        self._series = {metric.name: self._create(metric) for metric in METRICS}
        self._store = store
        self._series["history_fetch_duration_seconds"](store)
        self._models: set[str] = set()

    def count(self, event: str, *labels: str, by: float = 1) -> None:
        """Count an event, or several."""
        self._series[event](*labels).inc(by)

    def record_duration(self, stage: metrics.Stage, seconds: float) -> None:
        """Note how long a part of a request took."""
        if stage == "history":
            self._observe("history_fetch_duration_seconds", seconds, self._store)
        else:
            self._observe("build_duration_seconds", seconds, stage)

    def record_context(self, sizes: metrics.Sizes) -> None:
        """Note the sizes of a context; takes some 15 µs."""
        self._observe("context_utilization_ratio", sizes.utilization, self._label(sizes.model))
        for block, tokens in sizes.blocks:
            self._observe("context_tokens", tokens, block)
        for block, reason in sizes.yielded:
            self.count("blocks_dropped", block, reason)
        for decision, rows in sizes.decisions:
            self.count("candidates", decision, by=rows)
        self.count("tokens_saved", sizes.strategy, by=sizes.saved)
        self.count("rows_without_vector", by=sizes.without_vector)

    def record_http_request(self, route: str, method: str, status: str, seconds: float) -> None:
        """Count a request over HTTP, and note how long its answer took to begin."""
        self.count("http_requests", route, method, status)
        self._observe("http_request_duration_seconds", seconds, route)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def _create(self, metric: Metric) -> Callable[..., Any]:
        """Create a metric, and return what finds its series by labels, which are few."""
        name, about, labels = f"{PREFIX}{metric.name}", metric.about, metric.labels
        created: Counter | Histogram
        if metric.buckets:
            buckets = metric.buckets
            created = Histogram(name, about, labels, registry=self.registry, buckets=buckets)
        else:
            created = Counter(name, about, labels, registry=self.registry)
        # looking up labels takes longer than counting, so they are cached
        series: Callable[..., Any] = cache(created.labels) if labels else lambda: created
        for value in metric.values:
            series(value)
        return series

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._series[name](*labels).observe(value)

    def _label(self, model: str) -> str:
        """Return the model's label: its name for the first `MODELS`, then `OTHER_MODEL`."""
        if len(self._models) < MODELS:
            self._models.add(model)
        return model if model in self._models else metrics.OTHER_MODEL


# --- read on each scrape ---------------------------------------------------------------------

#: Seconds that the bus may take to report its depths.
DEPTH_SECONDS: Final = 1.0

#: Attributes of the bus that count, with the name and description of each metric.
_COUNTERS: Final = (
    (
        "resubscribed",
        "bus_resubscribes",
        "Lost and renewed subscriptions to the request channel. Requests may be lost each time.",
    ),
    (
        "dropped",
        "bus_messages_dropped",
        "Channel requests that were dropped, since they came faster than the worker took them.",
    ),
    (
        "forbidden",
        "replies_forbidden",
        "Answers to a list or stream that the worker's user may not write to. An error was sent on "
        "the common channel instead.",
    ),
)

#: Attributes of the depth of a stream, likewise.
_DEPTHS: Final = (
    (
        "lag",
        "stream_lag_messages",
        "Entries that wait: no worker has read them, or they wait for their turn in a lane. "
        "`stream` is `requests`, `results` or `recalls`.",
    ),
    (
        "pending",
        "stream_pending_messages",
        "Entries in work at all workers, without entries in lanes.",
    ),
    (
        "oldest_pending_seconds",
        "stream_oldest_pending_seconds",
        "Age of the oldest entry that was read and isn't answered, entries in lanes included; 0 if "
        "there is none.",
    ),
)


class WorkerGauges(Collector):
    """Reads the state of a worker; what the bus doesn't report in time is left out."""

    def __init__(self, bus: Bus, in_flight: Callable[[], int]) -> None:
        self._bus = bus
        self._in_flight = in_flight
        self._inboxes: Mapping[str, Inbox] = {
            "requests": bus.requests,
            "results": bus.results,
            "recalls": bus.recalls,
        }
        self._depths: dict[str, Depth] = {}
        self._checks: Sequence[Check] = ()

    async def refresh(self, checks: Sequence[Check]) -> None:
        """Note the checks of readiness and read the depths, since `collect` can't wait."""
        self._checks = checks
        self._depths = {}
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(DEPTH_SECONDS):
                for stream, inbox in self._inboxes.items():
                    self._depths[stream] = await inbox.depth()

    def collect(self) -> Iterator[MetricFamily]:
        """Yield the metrics as of the last `refresh`."""
        yield GaugeMetricFamily(
            f"{PREFIX}build_in_flight", "Requests in work at this worker.", self._in_flight()
        )
        for attribute, name, about in _COUNTERS:
            yield CounterMetricFamily(f"{PREFIX}{name}", about, getattr(self._bus, attribute))
        for attribute, name, about in _DEPTHS:
            gauge = _gauge(name, about, "stream")
            for stream, depth in self._depths.items():
                if (value := getattr(depth, attribute)) is not None:
                    gauge.add_metric([stream], value)
            yield gauge
        checks = _gauge("check_ok", "1 if a check of readiness succeeds, otherwise 0.", "check")
        for check in self._checks:
            checks.add_metric([check.name], check.ok)
        yield checks


def _gauge(name: str, about: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", about, labels=[label])
