"""What is counted and timed of a worker: the port, and the one that does nothing with it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from opentelemetry.trace import SpanKind

from service.observe.tracing import child_span, is_traced

#: ``queue`` is the wait in the stream, ``build`` holds ``gather``, ``fit`` and ``record``.
Part = Literal["queue", "build", "gather", "fit", "record", "send"]

#: To read the history is a part of ``gather``.
History = Literal["history"]

Stage = Part | History

#: ``stored``: answered with the stored answer; ``lease_lost``: another worker has it by now.
Duplicate = Literal["stored", "lease_lost"]

#: ``unreadable``: nobody can be answered; ``deliveries``: handed out too often; ``result``: no row.
Burial = Literal["unreadable", "deliveries", "result"]

#: ``made``: it was kept; ``postponed``: too many wait; ``failed``: there is none, or nowhere to
#: keep it. The others say why there was nothing to make.
SummaryOutcome = Literal["made", "not_needed", "busy", "overtaken", "postponed", "failed"]

#: ``reloaded``: others are in effect; ``failed``: the files changed and can't be used.
Reload = Literal["reloaded", "failed"]

#: How a model that no table knows is named, and none.
OTHER_MODEL: Final = "other"
NO_MODEL: Final = "none"

#: What came of asking a server for its tools; ``failed``: those of the last time stay.
Refresh = Literal["changed", "unchanged", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a context came to; no word in it comes from a request."""

    #: The name under which the model is known, `OTHER_MODEL`, or `NO_MODEL`.
    model: str
    #: Tokens by block, the array of tools among them; several may have the same label.
    blocks: Sequence[tuple[str, int]]
    #: Tokens by those that there was room for.
    utilization: float
    #: The blocks that gave way, and how.
    yielded: Sequence[tuple[str, str]]
    strategy: str
    #: Tokens of history that the strategy left out.
    saved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request over HTTP, in few words of our own."""

    #: The template of its path.
    route: str
    method: str
    #: Its class, as in 2xx.
    status: str


class Metrics(Protocol):
    """Takes note of what happens; neither waits nor raises, and may be called from any thread."""

    def took(self, stage: Stage, seconds: float) -> None:
        """Note how long a part of a request took."""
        ...

    def answered(self, outcome: str) -> None:
        """Count a request that got an answer of its own: ``success``, or the error's code."""
        ...

    def built(self, sizes: Sizes) -> None:
        """Note what a context came to."""
        ...

    def duplicate(self, kind: Duplicate) -> None:
        """Count a delivery that was kept from a second answer of its own."""
        ...

    def unheard(self) -> None:
        """Count a reply on a channel that nobody was subscribed to."""
        ...

    def buried(self, reason: Burial) -> None:
        """Count an entry that went to the dead letter."""
        ...

    def event_lost(self) -> None:
        """Count an event that could not be told."""
        ...

    def summarized(self, outcome: SummaryOutcome) -> None:
        """Count what came of a summary that a build asked for."""
        ...

    def reloaded(self, result: Reload) -> None:
        """Count an attempt to read texts that have changed."""
        ...

    def refreshed(self, source: str, outcome: Refresh) -> None:
        """Count a time that a server was asked for its tools; its name is the operator's."""
        ...

    def requested(self, request: HttpRequest, seconds: float) -> None:
        """Count a request over HTTP, and note how long its answer took to begin."""
        ...


class Unmeasured:
    """The `Metrics` of a process that nobody watches."""

    def took(self, stage: Stage, seconds: float) -> None:
        """Do nothing."""

    def answered(self, outcome: str) -> None:
        """Do nothing."""

    def built(self, sizes: Sizes) -> None:
        """Do nothing."""

    def duplicate(self, kind: Duplicate) -> None:
        """Do nothing."""

    def unheard(self) -> None:
        """Do nothing."""

    def buried(self, reason: Burial) -> None:
        """Do nothing."""

    def event_lost(self) -> None:
        """Do nothing."""

    def summarized(self, outcome: SummaryOutcome) -> None:
        """Do nothing."""

    def reloaded(self, result: Reload) -> None:
        """Do nothing."""

    def refreshed(self, source: str, outcome: Refresh) -> None:
        """Do nothing."""

    def requested(self, request: HttpRequest, seconds: float) -> None:
        """Do nothing."""


UNMEASURED: Final[Metrics] = Unmeasured()


#: What is asked of others while it lasts; the rest is our own work.
_KINDS: Final[Mapping[Stage, SpanKind]] = {
    "history": SpanKind.CLIENT,
    "record": SpanKind.CLIENT,
    "send": SpanKind.CLIENT,
}


class timed:  # noqa: N801 - read as a verb; as a generator it would take three times as long
    """Note how long the context took, however it ended; in a trace it is a span of its own."""

    __slots__ = ("_began", "_ended", "_metrics", "_span", "_stage")

    def __init__(self, metrics: Metrics, stage: Stage) -> None:
        self._metrics = metrics
        self._stage: Stage = stage
        self._began = self._ended = 0.0

    def __enter__(self) -> Self:
        self._began = perf_counter()
        self._span = _begun(self._stage) if is_traced() else None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._span:
            self._span.__exit__(kind, error, where)
        self._ended = perf_counter()
        self._metrics.took(self._stage, self.seconds)

    @property
    def seconds(self) -> float:
        """Return how long it took, or has taken by now."""
        return (self._ended or perf_counter()) - self._began


def _begun(stage: Stage) -> AbstractContextManager[object]:
    span = child_span(stage, _KINDS.get(stage, SpanKind.INTERNAL))
    span.__enter__()
    return span
