import asyncio
import threading

import pytest

from formatters.model import Count, Message, Role
from service.adapters.summarizers.extractive_summarizer import (
    ExtractiveSummarizer,
    open_extractive_summarizer,
)
from service.adapters.tokens.tokenizers import HEURISTIC
from service.config.content import SummarizerSettings
from service.errors import SummarizerError

TALK = [Message(id="m1", role=Role.HUMAN, content="Hi. I moved to Lisbon in 2019. Fine.")]


async def test_an_extract_is_a_summary(count: Count) -> None:
    """Within the tokens that are given."""
    text = await ExtractiveSummarizer(count).summarize(TALK, max_tokens=13)
    assert text == "- user: I moved to Lisbon in 2019."


async def test_no_room_is_an_error(count: Count) -> None:
    """An empty summary is none."""
    with pytest.raises(SummarizerError, match="no sentence fits into 2 tokens"):
        await ExtractiveSummarizer(count).summarize(TALK, max_tokens=2)


async def test_the_event_loop_is_free_meanwhile() -> None:
    """The work is done in another thread: the loop can end what the thread waits for."""
    may_go_on, waits = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(text: str) -> int:
        loop.call_soon_threadsafe(waits.set)
        may_go_on.wait()
        return len(text)

    summary = asyncio.create_task(ExtractiveSummarizer(slow).summarize(TALK, max_tokens=99))
    await waits.wait()
    may_go_on.set()
    assert (await summary).startswith("- user: Hi.")


async def test_it_opens_with_a_counter() -> None:
    """And needs no other dependency."""
    async with open_extractive_summarizer(SummarizerSettings(), HEURISTIC) as summarizer:
        assert summarizer.name == "extractive"
        assert await summarizer.summarize(TALK, max_tokens=50)
