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

#: The read of the history, a part of ``gather``.
History = Literal["history"]

Stage = Part | History

#: ``stored``: the stored answer was sent; ``lease_lost``: another worker has the delivery.
Duplicate = Literal["stored", "lease_lost"]

#: ``unreadable``: it can't be answered; ``deliveries``: delivered too often; ``result``: not a row.
DeadLetterReason = Literal["unreadable", "deliveries", "result"]

#: The input of a request, or a row that another service published.
UnstoredRow = Literal["input", "result"]

#: ``made``: it was stored; ``postponed``: the queue is full; ``failed``: a failure.
#: The others say why no summary was made.
SummaryOutcome = Literal["made", "not_needed", "busy", "overtaken", "postponed", "failed"]

#: ``reloaded``: the new texts are in effect; ``failed``: the changed files can't be used.
Reload = Literal["reloaded", "failed"]

#: Labels of a model in no table, and of none.
OTHER_MODEL: Final = "other"
NO_MODEL: Final = "none"

#: The outcome of listing a server's tools; after ``failed`` the last listing stays in effect.
Refresh = Literal["changed", "unchanged", "failed"]


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

    def record_duration(self, stage: Stage, seconds: float) -> None:
        """Record the duration of a stage."""

    def count_answer(self, outcome: str) -> None:
        """Count an answered request: ``success``, or the code of the error."""

    def record_context(self, sizes: Sizes) -> None:
        """Record the sizes of a context."""

    def count_duplicate(self, kind: Duplicate) -> None:
        """Count a delivery that got no second answer."""

    def count_unheard_reply(self) -> None:
        """Count a reply on a channel without subscribers."""

    def count_dead_letter(self, reason: DeadLetterReason) -> None:
        """Count an entry that went to the dead-letter stream."""

    def count_unstored_row(self, kind: UnstoredRow) -> None:
        """Count a row that isn't in the history, though its request or its entry is settled."""

    def count_lost_event(self) -> None:
        """Count an event that could not be published."""

    def count_summary(self, outcome: SummaryOutcome) -> None:
        """Count the outcome of a summary that a build requested."""

    def count_reload(self, result: Reload) -> None:
        """Count an attempt to reload changed prompts."""

    def count_refresh(self, source: str, outcome: Refresh) -> None:
        """Count a listing of the tools of a server; ``source`` is its configured name."""

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
