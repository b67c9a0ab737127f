"""Metrics of a worker: what can be recorded, and the timer of a stage."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Final, Literal, Self

from opentelemetry.trace import SpanKind

from service.observe.tracing import child_span, is_traced

#: ``queue`` is the wait in the stream; ``build`` includes ``gather``, ``fit`` and ``record``.
Part = Literal["queue", "build", "gather", "fit", "record", "send"]

#: The read of the history, a part of ``gather``.
History = Literal["history"]

Stage = Part | History

#: ``stored``: the stored answer was sent; ``lease_lost``: another worker has the delivery.
Duplicate = Literal["stored", "lease_lost"]

#: ``unreadable``: it can't be answered; ``deliveries``: delivered too often; ``result``: not a row.
DeadLetterReason = Literal["unreadable", "deliveries", "result"]

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
    strategy: str
    #: Tokens of the history that the strategy dropped.
    saved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """An HTTP request, under bounded labels."""

    #: The template of the path.
    route: str
    method: str
    #: The class of the status, such as ``2xx``.
    status: str


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

    def count_lost_event(self) -> None:
        """Count an event that could not be published."""

    def count_summary(self, outcome: SummaryOutcome) -> None:
        """Count the outcome of a summary that a build requested."""

    def count_reload(self, result: Reload) -> None:
        """Count an attempt to reload changed prompts."""

    def count_refresh(self, source: str, outcome: Refresh) -> None:
        """Count a listing of the tools of a server; ``source`` is its configured name."""

    def record_http_request(self, request: HttpRequest, seconds: float) -> None:
        """Count an HTTP request, and record the time until its response began."""


UNMEASURED: Final = Metrics()


#: Stages that wait for a server.
_KINDS: Final[Mapping[Stage, SpanKind]] = {
    "history": SpanKind.CLIENT,
    "record": SpanKind.CLIENT,
    "send": SpanKind.CLIENT,
}


class timed:  # noqa: N801 - read as a verb; a generator would take three times as long
    """A context manager that records the duration of a stage, with a span if there is a trace."""

    __slots__ = ("_ended", "_metrics", "_span", "_stage", "_started")

    def __init__(self, metrics: Metrics, stage: Stage) -> None:
        self._metrics = metrics
        self._stage: Stage = stage
        self._started = self._ended = 0.0

    def __enter__(self) -> Self:
        self._started = perf_counter()
        self._span = _start_span(self._stage) if is_traced() else None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._span:
            self._span.__exit__(kind, error, traceback)
        self._ended = perf_counter()
        self._metrics.record_duration(self._stage, self.seconds)

    @property
    def seconds(self) -> float:
        """Return the duration so far."""
        return (self._ended or perf_counter()) - self._started


def _start_span(stage: Stage) -> AbstractContextManager[object]:
    span = child_span(stage, _KINDS.get(stage, SpanKind.INTERNAL))
    span.__enter__()
    return span
