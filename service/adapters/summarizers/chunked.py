"""Summaries by a model that reads a conversation of any length, chunk by chunk."""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from formatters.model import Count, Message
from prompts.summary_prompt import (
    SEPARATOR_TOKENS,
    Chunk,
    format_summary_prompt,
    split_chunks,
)
from service.config.content import SummarizerSettings
from service.errors import NoSummaryError, SummarizerError

#: Ask a model: prompt and the most tokens of its answer. Raises `SummarizerError`.
Ask = Callable[[str, int], Awaitable[str]]

#: Tokens for the summary of a chunk at least: fewer say nothing.
LEAST_SHARE: Final = 40
#: Answers longer than their share by this factor are not trusted; up to it they are cut, as models
#: count by other tokenizers.
TOO_LONG: Final = 1.5

_SENTENCE_END: Final = re.compile(r"[.!?](?=\s)|[。！？]|(?=\n)|$")


class ChunkedSummarizer:
    """The `Summarizer` that asks for the summary of each chunk, and joins them in order.

    Each is made of what was said, never of another summary.
    """

    def __init__(self, name: str, ask: Ask, count: Count, settings: SummarizerSettings) -> None:
        self.name = name
        self._ask = ask
        self._count = count
        self._settings = settings

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary; raises `SummarizerError` if any chunk has none."""
        size, redact = self._settings.chunk_tokens, self._settings.redact
        parts = await asyncio.to_thread(split_chunks, messages, size, self._count, redact=redact)
        shares = shared_out(max_tokens, [part.tokens for part in parts])
        slots = asyncio.Semaphore(self._settings.concurrency)
        try:
            async with asyncio.TaskGroup() as tasks:
                asked = [
                    tasks.create_task(self._part(part, share, slots))
                    for part, share in zip(parts, shares, strict=True)
                ]
        except* SummarizerError as failed:
            first = failed.exceptions[0]
        else:
            return "\n\n".join(task.result() for task in asked)
        raise first

    async def _part(self, part: Chunk, share: int, slots: asyncio.Semaphore) -> str:
        async with slots:
            answer = await self._ask(format_summary_prompt(part.entries), share)
        return within(answer.strip(), share, self._count)


def shared_out(max_tokens: int, sizes: Sequence[int]) -> list[int]:
    """Return the tokens for the summary of each chunk: a least, and more by its size.

    Raises `NoSummaryError` where there is nothing to summarise, or too much for so few tokens.
    """
    room = max_tokens - len(sizes) * (LEAST_SHARE + SEPARATOR_TOKENS)
    if not sizes:
        raise NoSummaryError("there is nothing to summarise")
    if room < 0:
        raise NoSummaryError(f"{len(sizes)} chunks can't be told in {max_tokens} tokens")
    return [LEAST_SHARE + room * size // sum(sizes) for size in sizes]


def within(text: str, most: int, count: Count) -> str:
    """Return the whole sentences of an answer that are ``most`` tokens at most.

    Raises `NoSummaryError` where that would be little of it.
    """
    if (tokens := count(text)) <= most:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    fitting = bisect_right(ends, most, key=lambda end: count(text[:end]))
    if tokens > most * TOO_LONG or not fitting:
        raise NoSummaryError(f"the summary has {tokens} tokens in place of {most}")
    return text[: ends[fitting - 1]].strip()
