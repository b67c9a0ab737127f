"""Summaries without a model, of the most informative sentences of the conversation."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from formatters.extractive import extract
from formatters.model import Count, Message
from service.config.content import SummarizerSettings
from service.errors import NoSummaryError
from service.ports.services import Summarizer, TokenCounter


@asynccontextmanager
async def open_extractive_summarizer(
    _settings: SummarizerSettings, counter: TokenCounter
) -> AsyncIterator[Summarizer]:
    """Open the summarizer; it needs no connection."""
    yield ExtractiveSummarizer(counter.count)


class ExtractiveSummarizer:
    """A `Summarizer` that selects sentences, in a thread."""

    name = "extractive"

    def __init__(self, count: Count) -> None:
        self._count = count

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return an extract; raises `NoSummaryError` if not even one sentence fits."""
        text = await asyncio.to_thread(extract, messages, max_tokens, self._count)
        if not text:
            raise NoSummaryError(f"no sentence fits into {max_tokens} tokens")
        return text
