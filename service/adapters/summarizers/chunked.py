"""Summaries of conversations of any length, by a model that reads them chunk by chunk."""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from formatters.model import Count, Message, Role
from prompts.summary_prompt import SEPARATOR_TOKENS, Chunk, format_summary_prompt, split_chunks
from service.config.content import SummarizerSettings
from service.errors import NoSummaryError, SummarizerError

#: Send a model a prompt, and the most tokens of its answer. Raises `SummarizerError`.
Ask = Callable[[str, int], Awaitable[str]]

#: The least tokens for the summary of a chunk; shorter ones say nothing.
MIN_SHARE: Final = 40
#: An answer longer than its share by more than this factor is refused. A shorter one is cut, since
#: models count with other tokenizers.
TOO_LONG: Final = 1.5

_SENTENCE_END: Final = re.compile(r"[.!?](?=\s)|[。！？]|(?=\n)|$")


class ChunkedSummarizer:
    """A `Summarizer` that asks a model for a summary of each chunk, and joins them in order.

    The chunks are of the conversation itself. If they are too many for ``max_tokens``, what is
    joined is summarised in turn.
    """

    def __init__(self, name: str, ask: Ask, count: Count, settings: SummarizerSettings) -> None:
        self.name = name
        self._ask = ask
        self._count = count
        self._settings = settings

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary; raises `SummarizerError` if the summary of any chunk fails."""
        size, redact = self._settings.chunk_tokens, self._settings.redact
        chunks = await asyncio.to_thread(split_chunks, messages, size, self._count, redact=redact)
        least = len(chunks) * (MIN_SHARE + SEPARATOR_TOKENS)
        if len(chunks) < 2 or least <= max_tokens:
            return "\n\n".join(await self._summarize_chunks(chunks, max_tokens))
        # half a chunk at most, so that there are fewer chunks each time
        parts = await self._summarize_chunks(chunks, max(least, size // 2))
        joined = [Message(id=str(n), role=Role.OTHER, content=part) for n, part in enumerate(parts)]
        return await self.summarize(joined, max_tokens=max_tokens)

    async def _summarize_chunks(self, chunks: Sequence[Chunk], max_tokens: int) -> list[str]:
        """Return the summaries of chunks, of ``max_tokens`` tokens together."""
        shares = split_tokens(max_tokens, [chunk.tokens for chunk in chunks])
        slots = asyncio.Semaphore(self._settings.concurrency)

        async def summarize_chunk(chunk: Chunk, share: int) -> str:
            async with slots:
                answer = await self._ask(format_summary_prompt(chunk.entries), share)
            return cut_to_sentences(answer.strip(), share, self._count)

        try:
            async with asyncio.TaskGroup() as group:
                coroutines = map(summarize_chunk, chunks, shares)
                tasks = [group.create_task(coroutine) for coroutine in coroutines]
        except* SummarizerError as failures:
            first = failures.exceptions[0]
        else:
            return [task.result() for task in tasks]
        raise first


def split_tokens(max_tokens: int, sizes: Sequence[int]) -> list[int]:
    """Return the tokens for the summary of each chunk: a minimum, and more in proportion to size.

    Raises `NoSummaryError` if there is nothing to summarise, or too much for ``max_tokens``.
    """
    least = len(sizes) * (MIN_SHARE + SEPARATOR_TOKENS)
    if not sizes:
        raise NoSummaryError("there is nothing to summarise")
    if least > max_tokens:
        raise NoSummaryError(f"the summary needs at least {least} tokens, not {max_tokens}")
    spare = max_tokens - least
    return [MIN_SHARE + spare * size // sum(sizes) for size in sizes]


def cut_to_sentences(text: str, max_tokens: int, count: Count) -> str:
    """Return the complete sentences of an answer that fit into ``max_tokens``.

    Raises `NoSummaryError` if the answer is much too long, or no sentence fits.
    """
    if (tokens := count(text)) <= max_tokens:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    fitting = bisect_right(ends, max_tokens, key=lambda end: count(text[:end]))
    if tokens > max_tokens * TOO_LONG or not fitting:
        raise NoSummaryError(f"the summary has {tokens} tokens instead of {max_tokens}")
    return text[: ends[fitting - 1]].strip()
