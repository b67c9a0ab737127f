"""Counts and times of a worker, as Prometheus wants them."""

from collections.abc import Mapping
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


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Counter:
    """Return a counter; its name gets ``_total`` where it is written."""
    return Counter(f"{PREFIX}{name}", about, labels, registry=registry)


def histogram(
    registry: CollectorRegistry, name: str, about: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    """Return a histogram with these upper bounds."""
    return Histogram(f"{PREFIX}{name}", about, labels, registry=registry, buckets=buckets)


#: Tokens: from a word to the largest windows there are.
TOKENS: Final = (16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
#: A context that is nearly full matters more than one that is nearly empty.
RATIOS: Final = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
#: Models that are told apart: the tables have hundreds, and a caller may name them all.
MODELS: Final = 32


class ContextSizes:
    """Takes note of contexts; costs a build some 15 µs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        utilization = histogram(
            registry,
            "context_utilization_ratio",
            "The tokens of a context by those there was room for, from 0 to 1; `model` is the name "
            "that the table of limits or `budget.model_limits` has for it, of the first 32; "
            "`other` for the rest, `none` where a request names none.",
            RATIOS,
            "model",
        )
        self._models: set[str] = set()
        tokens = histogram(
            registry,
            "context_tokens",
            "Tokens of each block of a context, by its tag, and of the array of `tools`; `custom` "
            "is any block that a request brought along.",
            TOKENS,
            "block",
        )
        gave_way = counter(
            registry,
            "blocks_dropped",
            "Blocks other than history that gave way: left out (`block_dropped`) or shortened "
            "(`block_shortened`).",
            "block",
            "reason",
        )
        saved = counter(
            registry,
            "tokens_saved",
            "Tokens of history that was read and not sent, since the strategy left it out, "
            "shortened or cleared it.",
            "strategy",
        )
        # to look a label up takes longer than to count; there are few
        self._utilization = cache(utilization.labels)
        self._tokens = cache(tokens.labels)
        self._gave_way = cache(gave_way.labels)
        self._saved = cache(saved.labels)

    def note(self, sizes: Sizes) -> None:
        """Note what a context came to."""
        self._utilization(self._label(sizes.model)).observe(sizes.utilization)
        for block, tokens in sizes.blocks:
            self._tokens(block).observe(tokens)
        for block, reason in sizes.yielded:
            self._gave_way(block, reason).inc()
        self._saved(sizes.strategy).inc(sizes.saved)

    def _label(self, model: str) -> str:
        if len(self._models) < MODELS:
            self._models.add(model)
        return model if model in self._models else OTHER_MODEL


class HttpRequests:
    """Takes note of requests to the HTTP interface."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = counter(
            registry,
            "http_requests",
            "Requests to the HTTP interface, by the template of the path: `page` is any file of "
            "the page, `other` a path that there isn't, or what was refused before its path was "
            "looked at; the status is its class, such as `2xx`, and `none` where the caller was "
            "gone before.",
            "route",
            "method",
            "status",
        )
        self._answering = histogram(
            registry,
            "http_request_duration_seconds",
            "Time until the answer to an HTTP request begins.",
            DURATIONS,
            "route",
        )

    def note(self, request: HttpRequest, seconds: float) -> None:
        """Count a request, and note how long its answer took to begin."""
        self._requests.labels(request.route, request.method, request.status).inc()
        self._answering.labels(request.route).observe(seconds)


class PrometheusMetrics(Metrics):
    """The `Metrics` of one worker, in a registry of its own.

    Labels take few values, all from the code or the configuration. What is counted stands at 0 from
    the start where its labels are known, so that the first one shows as an increase.
    """

    def __init__(self, store: str) -> None:
        """Begin to count; ``store`` is the scheme of the store's URL, which is a label."""
        self.registry = registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=registry)
        info = Info(f"{PREFIX}build", "1, with the version of the service.", registry=registry)
        info.info({"version": version("context-builder")})
        self._stages = _stages(registry, store)
        self._outcomes = counter(
            registry,
            "build_requests",
            "Requests answered for the first time: `success`, or the code of the error.",
            "outcome",
        )
        for outcome in ("success", *(each.code for each in CODES.values() if each.on_the_wire)):
            self._outcomes.labels(outcome)
        self._sizes = ContextSizes(registry)
        self._duplicates = self._each(
            "duplicates_suppressed",
            "Deliveries kept from a second answer of their own: answered with the stored one "
            "(`stored`), or taken over by another worker, so that nothing was sent (`lease_lost`).",
            "reason",
            Duplicate,
        )
        self._burials = self._each(
            "dead_letters",
            "Entries sent to the dead letter: nobody can be answered (`unreadable`), handed out "
            "too often (`deliveries`), no row or one that the store refuses (`result`).",
            "reason",
            DeadLetterReason,
        )
        dropped = counter(
            registry,
            "reply_dropped",
            "Replies on a channel that nobody was subscribed to (`no_subscriber`).",
            "reason",
        )
        self._unheard = dropped.labels("no_subscriber")
        self._events_lost = counter(registry, "events_lost", "Events that could not be told.")
        self._summaries = self._each(
            "summary_requests",
            "Summaries that builds asked for: `made` or `failed`; too many waited (`postponed`); "
            "there was nothing to make (`not_needed`), another worker was at it (`busy`), or came "
            "first (`overtaken`).",
            "outcome",
            SummaryOutcome,
        )
        self._reloads = self._each(
            "config_reloads",
            "Prompt files that changed: `reloaded`, or `failed`, which counts on at each look "
            "while they can't be used.",
            "result",
            Reload,
        )
        self._refreshes = counter(
            registry,
            "tool_refresh",
            "Times that a server of `tools.mcp` was asked for its tools: `changed`, `unchanged`, "
            "or `failed`.",
            "source",
            "outcome",
        )
        self._asked = HttpRequests(registry)

    def took(self, stage: Stage, seconds: float) -> None:
        """Note how long a part of a request took."""
        self._stages[stage].observe(seconds)

    def answered(self, outcome: str) -> None:
        """Count a request that got an answer of its own: ``success``, or the error's code."""
        self._outcomes.labels(outcome).inc()

    def built(self, sizes: Sizes) -> None:
        """Note what a context came to."""
        self._sizes.note(sizes)

    def duplicate(self, kind: Duplicate) -> None:
        """Count a delivery that was kept from a second answer of its own."""
        self._duplicates[kind].inc()

    def unheard(self) -> None:
        """Count a reply on a channel that nobody was subscribed to."""
        self._unheard.inc()

    def buried(self, reason: DeadLetterReason) -> None:
        """Count an entry that went to the dead letter."""
        self._burials[reason].inc()

    def event_lost(self) -> None:
        """Count an event that could not be told."""
        self._events_lost.inc()

    def summarized(self, outcome: SummaryOutcome) -> None:
        """Count what came of a summary that a build asked for."""
        self._summaries[outcome].inc()

    def reloaded(self, result: Reload) -> None:
        """Count an attempt to read texts that have changed."""
        self._reloads[result].inc()

    def refreshed(self, source: str, outcome: Refresh) -> None:
        """Count a time that a server was asked for its tools."""
        self._refreshes.labels(source, outcome).inc()

    def requested(self, request: HttpRequest, seconds: float) -> None:
        """Count a request over HTTP, and note how long its answer took to begin."""
        self._asked.note(request, seconds)

    def text(self) -> bytes:
        """Write all of it in the text format."""
        return generate_latest(self.registry)

    def _each(self, name: str, about: str, label: str, values: object) -> Mapping[str, Counter]:
        """Return a counter for each value of a `Literal`."""
        metric = counter(self.registry, name, about, label)
        return {value: metric.labels(value) for value in get_args(values)}


def _stages(registry: CollectorRegistry, store: str) -> Mapping[Stage, Histogram]:
    """Return what takes the times of each part of a request."""
    parts = histogram(
        registry,
        "build_duration_seconds",
        "Time of a part of a request: its wait in the stream (`queue`), all of the build "
        "(`build`) with its `gather`, `fit` and `record`, and the way to the bus (`send`).",
        DURATIONS,
        "stage",
    )
    fetched = histogram(
        registry,
        "history_fetch_duration_seconds",
        "Time to read an owner's history, a part of `gather`, by the scheme of `store.url`.",
        DURATIONS,
        "backend",
    )
    return {
        **{stage: parts.labels(stage) for stage in get_args(Part)},
        "history": fetched.labels(store),
    }
