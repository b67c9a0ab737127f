"""Metrics of a worker: what can be recorded, and the timer of a stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Literal

from opentelemetry.trace import SpanKind

from service.observe.tracing import child_span, is_traced

#: ``queue`` is the wait in the stream; ``build`` includes ``gather``, ``fit`` and ``record``, or
#: ``recall`` if earlier messages were requested.
Part = Literal["queue", "build", "gather", "fit", "recall", "record", "send"]

#: ``history`` is the read of the history, a part of ``gather``.
Stage = Part | Literal["history"]

#: What is counted; `METRICS` of `service.http.prometheus` describes each, with its labels.
Event = Literal[
    "build_requests",
    "duplicates_suppressed",
    "reply_dropped",
    "dead_letters",
    "rows_not_stored",
    "events_lost",
    "summary_requests",
    "config_reloads",
    "tool_refresh",
]

#: Labels of a model in no table, and of none.
OTHER_MODEL: Final = "other"
NO_MODEL: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of a context; no label comes from a request."""

    #: The model's name in the tables, `OTHER_MODEL` or `NO_MODEL`.
    model: str
    #: Tokens by block, including the array of tools; labels may repeat.
    blocks: Sequence[tuple[str, int]]
    #: Tokens used, divided by those available.
    utilization: float
    #: The blocks that were shortened or dropped: tag and code.
    yielded: Sequence[tuple[str, str]]
    #: The number of rows by decision.
    decisions: Sequence[tuple[str, int]]
    strategy: str
    #: Tokens of the history that the strategy dropped.
    saved: int
    #: Rows that were ranked by words alone, as they had no vector yet.
    without_vector: int = 0


class Metrics:
    """Records what happens; this base records nothing, `service.http.prometheus` does.

    No method waits or raises, and each may be called from any thread.
    """

    def count(self, event: Event, *labels: str) -> None:
        """Count an event, with the values of its labels in their order."""

    def record_duration(self, stage: Stage, seconds: float) -> None:
        """Record the duration of a stage."""

    def record_context(self, sizes: Sizes) -> None:
        """Record the sizes of a context."""

    def record_http_request(self, route: str, method: str, status: str, seconds: float) -> None:
        """Count an HTTP request, and record the time until its response began.

        ``route`` is the template of its path, ``status`` the class of the status, such as ``2xx``.
        """


UNMEASURED: Final = Metrics()


#: Stages that wait for a server.
_KINDS: Final[Mapping[Stage, SpanKind]] = {
    "history": SpanKind.CLIENT,
    "record": SpanKind.CLIENT,
    "send": SpanKind.CLIENT,
}


class timed:  # noqa: N801 - read as a verb; a generator would take four times as long
    """A context manager that records the duration of a stage, with a span if there is a trace."""

    def __init__(self, metrics: Metrics, stage: Stage) -> None:
        kind = _KINDS.get(stage, SpanKind.INTERNAL)
        self._metrics, self._stage = metrics, stage
        self._span = child_span(stage, kind) if is_traced() else None

    def __enter__(self) -> None:
        if self._span:
            self._span.__enter__()
        self._started = perf_counter()

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 - passed on
        if self._span:
            self._span.__exit__(*error)
        self._metrics.record_duration(self._stage, perf_counter() - self._started)
