"""A circuit breaker: a summarizer that keeps failing is left in peace for a while."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from formatters.model import Message
from service.errors import NoSummaryError, SummarizerError
from service.ports.services import Summarizer

log = structlog.get_logger(__name__)


class CircuitBreaker:
    """The `Summarizer` that stops asking another one after some failures in a row.

    An answer that is no summary of what was asked is no failure: the next history may have one.

    After ``open_seconds`` it lets one try through: if that succeeds all go through again, else the
    pause begins anew.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        clock: Callable[[], float],
        *,
        failures: int,
        open_seconds: float,
    ) -> None:
        self._summarizer = summarizer
        #: Tells seconds that never go back.
        self._clock = clock
        self._most = failures
        self._seconds = open_seconds
        self._failures = 0
        self._opened: float | None = None
        self._trying = False

    @property
    def name(self) -> str:
        """The name of what is behind it."""
        return self._summarizer.name

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Pass on to the summarizer; raises `SummarizerError` at once while that is left out."""
        if self._opened is None:
            return await self._passed_on(messages, max_tokens)
        if self._trying or self._clock() < self._opened + self._seconds:
            raise SummarizerError("summaries pause after failures")
        self._trying = True
        try:
            return await self._passed_on(messages, max_tokens)
        finally:
            self._trying = False

    async def _passed_on(self, messages: Sequence[Message], max_tokens: int) -> str:
        try:
            summary = await self._summarizer.summarize(messages, max_tokens=max_tokens)
        except NoSummaryError:
            self._succeeded()
            raise
        except SummarizerError as error:
            self._failed(error.detail)
            raise
        except asyncio.CancelledError:  # whoever waited has lost patience
            self._failed("it took too long")
            raise
        self._succeeded()
        return summary

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if self._opened is None and self._failures < self._most:
            return
        if self._opened is None:
            log.warning("summarizer.paused", summarizer=self.name, reason=reason)
        self._opened = self._clock()

    def _succeeded(self) -> None:
        self._failures = 0
        if self._opened is not None:
            log.info("summarizer.resumed", summarizer=self.name)
        self._opened = None
