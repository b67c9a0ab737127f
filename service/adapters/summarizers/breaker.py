"""A circuit breaker around a summarizer that keeps failing."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from formatters.model import Message
from service.errors import NoSummaryError, SummarizerError
from service.ports.services import Summarizer

log = structlog.get_logger(__name__)


class CircuitBreaker:
    """A `Summarizer` that stops calling another one after consecutive failures.

    `NoSummaryError` doesn't count as a failure: the next history may have a summary.

    After ``open_seconds`` it lets one call through; if that succeeds, all others, too.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        clock: Callable[[], float],
        *,
        failures: int,
        open_seconds: float,
    ) -> None:
        """Take a summarizer, and a monotonic clock in seconds."""
        self.name = summarizer.name
        self._summarizer = summarizer
        self._clock = clock
        self._max_failures = failures
        self._open_seconds = open_seconds
        self._failures = 0
        self._paused_until = 0.0

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Call the summarizer; raises `SummarizerError`, at once while the breaker is open."""
        if self._failures >= self._max_failures:
            if self._clock() < self._paused_until:
                raise SummarizerError("summaries are paused after repeated failures")
            self._paused_until = self._clock() + self._open_seconds  # until this call has ended
        try:
            summary = await self._summarizer.summarize(messages, max_tokens=max_tokens)
        except NoSummaryError:
            self._record_success()
            raise
        except SummarizerError as error:
            self._record_failure(error.detail)
            raise
        except asyncio.CancelledError:  # the caller's time limit has passed
            self._record_failure("it took too long")
            raise
        self._record_success()
        return summary

    def _record_failure(self, reason: str) -> None:
        self._failures += 1
        if self._failures == self._max_failures:
            log.warning("summarizer.paused", summarizer=self.name, reason=reason)
        self._paused_until = self._clock() + self._open_seconds

    def _record_success(self) -> None:
        if self._failures >= self._max_failures:
            log.info("summarizer.resumed", summarizer=self.name)
        self._failures = 0
