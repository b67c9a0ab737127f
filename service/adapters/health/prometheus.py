"""Counts and times of a worker, as Prometheus wants them."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from service.adapters.health.context_sizes import ContextSizes
from service.adapters.health.http_requests import HttpRequests
from service.adapters.health.naming import DURATIONS, PREFIX, counter, histogram
from service.error_codes import CODES
from service.metrics import (
    Burial,
    Duplicate,
    HttpRequest,
    Part,
    Refresh,
    Reload,
    Sizes,
    Stage,
    SummaryOutcome,
)


class PrometheusMetrics:
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
            Burial,
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

    def buried(self, reason: Burial) -> None:
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
