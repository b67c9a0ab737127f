"""The `Metrics` of a worker as Prometheus metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
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

from service.errors import CODES
from service.observe.metrics import (
    OTHER_MODEL,
    DeadLetterReason,
    Duplicate,
    HttpRequest,
    Metrics,
    Part,
    Refresh,
    Reload,
    Sizes,
    Stage,
    SummaryOutcome,
)

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
        "Time of a part of a request: its wait in the stream (`queue`), the whole build (`build`) "
        "with its `gather`, `fit` and `record`, and sending the response (`send`).",
        labels=("stage",),
        values=get_args(Part),
        buckets=DURATIONS,
    ),
    Metric(
        "history_fetch_duration_seconds",
        "Time to read an owner's history, a part of `gather`, by the scheme of `store.url`.",
        labels=("backend",),
        buckets=DURATIONS,
    ),
    Metric(
        "build_requests",
        "Requests answered for the first time: `success`, or the code of the error.",
        labels=("outcome",),
        values=("success", *(error.code for error in CODES.values() if error.on_the_wire)),
    ),
    Metric(
        "context_utilization_ratio",
        "The tokens of a context divided by those available, from 0 to 1; `model` is the name "
        "in the table of limits or in `budget.model_limits`, for the first 32; `other` for the "
        "rest, `none` if a request names none.",
        labels=("model",),
        buckets=RATIOS,
    ),
    Metric(
        "context_tokens",
        "Tokens of each block of a context, by its tag, and of the array of `tools`; `custom` is "
        "any block that a request brought along.",
        labels=("block",),
        buckets=TOKENS,
    ),
    Metric(
        "blocks_dropped",
        "Blocks other than history that were left out (`block_dropped`) or shortened "
        "(`block_shortened`) to fit the budget.",
        labels=("block", "reason"),
    ),
    Metric(
        "tokens_saved",
        "Tokens of history that was read but not sent, since the strategy left it out, shortened "
        "or cleared it.",
        labels=("strategy",),
    ),
    Metric(
        "duplicates_suppressed",
        "Deliveries without an answer of their own: answered with the stored one (`stored`), or "
        "taken over by another worker, so that nothing was sent (`lease_lost`).",
        labels=("reason",),
        values=get_args(Duplicate),
    ),
    Metric(
        "dead_letters",
        "Entries sent to the dead-letter stream: no one can be answered (`unreadable`), delivered "
        "too often (`deliveries`), not a row or one that the store refuses (`result`).",
        labels=("reason",),
        values=get_args(DeadLetterReason),
    ),
    Metric(
        "reply_dropped",
        "Replies on a channel without subscribers (`no_subscriber`).",
        labels=("reason",),
        values=("no_subscriber",),
    ),
    Metric("events_lost", "Events that could not be published."),
    Metric(
        "summary_requests",
        "Summaries that builds requested: `made` or `failed`; too many were waiting "
        "(`postponed`); nothing to summarise (`not_needed`); another worker was making it "
        "(`busy`), or was faster (`overtaken`).",
        labels=("outcome",),
        values=get_args(SummaryOutcome),
    ),
    Metric(
        "config_reloads",
        "Prompt files that changed: `reloaded`, or `failed`, which increases with each look while "
        "they can't be used.",
        labels=("result",),
        values=get_args(Reload),
    ),
    Metric(
        "tool_refresh",
        "Times that a server of `tools.mcp` was asked for its tools: `changed`, `unchanged`, or "
        "`failed`.",
        labels=("source", "outcome"),
    ),
    Metric(
        "http_requests",
        "Requests to the HTTP interface, by the template of the path: `page` is any file of the "
        "page, `other` an unknown path, or a request that was refused before routing; the status "
        "is its class, such as `2xx`, and `none` if the caller disconnected before.",
        labels=("route", "method", "status"),
    ),
    Metric(
        "http_request_duration_seconds",
        "Time until the answer to an HTTP request begins.",
        labels=("route",),
        buckets=DURATIONS,
    ),
)


class PrometheusMetrics(Metrics):
    """The `Metrics` of one worker, in a registry of its own.

    Labels have few values, all of them from the code or the configuration.
    """

    def __init__(self, store: str) -> None:
        """Create all metrics; ``store`` is the scheme of the store's URL, which is a label."""
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        info = Info(f"{PREFIX}build", "1, with the version of the service.", registry=self.registry)
        info.info({"version": version("context-builder")})
        self._counters: dict[str, Callable[..., Counter]] = {}
        self._histograms: dict[str, Callable[..., Histogram]] = {}
        for metric in METRICS:
            self._create(metric)
        self._store = store
        self._histograms["history_fetch_duration_seconds"](store)
        self._models: set[str] = set()

    def record_duration(self, stage: Stage, seconds: float) -> None:
        """Note how long a part of a request took."""
        if stage == "history":
            self._observe("history_fetch_duration_seconds", seconds, self._store)
        else:
            self._observe("build_duration_seconds", seconds, stage)

    def count_answer(self, outcome: str) -> None:
        """Count a request that got an answer of its own: ``success``, or the error's code."""
        self._count("build_requests", outcome)

    def record_context(self, sizes: Sizes) -> None:
        """Note the sizes of a context; takes some 15 µs."""
        self._observe("context_utilization_ratio", sizes.utilization, self._label(sizes.model))
        for block, tokens in sizes.blocks:
            self._observe("context_tokens", tokens, block)
        for block, reason in sizes.yielded:
            self._count("blocks_dropped", block, reason)
        self._count("tokens_saved", sizes.strategy, by=sizes.saved)

    def count_duplicate(self, kind: Duplicate) -> None:
        """Count a delivery without an answer of its own."""
        self._count("duplicates_suppressed", kind)

    def count_unheard_reply(self) -> None:
        """Count a reply on a channel without subscribers."""
        self._count("reply_dropped", "no_subscriber")

    def count_dead_letter(self, reason: DeadLetterReason) -> None:
        """Count an entry sent to the dead-letter stream."""
        self._count("dead_letters", reason)

    def count_lost_event(self) -> None:
        """Count an event that could not be published."""
        self._count("events_lost")

    def count_summary(self, outcome: SummaryOutcome) -> None:
        """Count the outcome of a summary that a build requested."""
        self._count("summary_requests", outcome)

    def count_reload(self, result: Reload) -> None:
        """Count an attempt to read prompt files that have changed."""
        self._count("config_reloads", result)

    def count_refresh(self, source: str, outcome: Refresh) -> None:
        """Count a time that a server was asked for its tools."""
        self._count("tool_refresh", source, outcome)

    def record_http_request(self, request: HttpRequest, seconds: float) -> None:
        """Count a request over HTTP, and note how long its answer took to begin."""
        self._count("http_requests", request.route, request.method, request.status)
        self._observe("http_request_duration_seconds", seconds, request.route)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def _create(self, metric: Metric) -> None:
        # looking up labels takes longer than counting, so they are cached; there are few
        name, about, labels = f"{PREFIX}{metric.name}", metric.about, metric.labels
        with_labels: Callable[..., Counter | Histogram]
        if metric.buckets:
            buckets = metric.buckets
            histogram = Histogram(name, about, labels, registry=self.registry, buckets=buckets)
            with_labels = self._histograms[metric.name] = cache(histogram.labels)
        else:
            counter = Counter(name, about, labels, registry=self.registry)
            self._counters[metric.name] = cache(counter.labels) if labels else lambda: counter
            with_labels = self._counters[metric.name]
        for value in metric.values:
            with_labels(value)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        self._counters[name](*labels).inc(by)

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._histograms[name](*labels).observe(value)

    def _label(self, model: str) -> str:
        """Return the model's label: its name for the first `MODELS`, then `OTHER_MODEL`."""
        if len(self._models) < MODELS:
            self._models.add(model)
        return model if model in self._models else OTHER_MODEL
