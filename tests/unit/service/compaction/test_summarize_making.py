"""One summary: when it is made, when not, and when what came of it is no use."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from formatters.model import MemoryView, Message
from service.adapters.memory.store import MemoryHistory, MemorySummaries
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.compaction.job import Job
from service.compaction.summarize import NewSummary, SkipReason, SummaryMaker
from service.config.content import SummariesSettings
from service.errors import SummarizerError
from service.ports.stores import Scope
from tests.openings import Openings
from tests.support import NOW, row

ROWS = [row(n, ("HUMAN", "AI")[n % 2], f"words of message {n} " * 6) for n in range(40)]
JOB = Job(
    scope=Scope("o"),
    room=600,
    tokenizer="o200k_base",
    layout="tagged",
    memory=MemoryView(limit=None),
)


class Meddling(Openings):
    """A summariser in whose time a row is changed by others."""

    def __init__(self, history: MemoryHistory) -> None:
        self.history = history

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Prune a row that it summarises."""
        await self.history.prune("o", [messages[0].id])
        return await super().summarize(messages, max_tokens=max_tokens)


class Saying:
    """A summariser that says the same of everything."""

    name = "saying"

    def __init__(self, text: str) -> None:
        self.text = text

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Say it."""
        return self.text


class Hanging(Openings):
    """A summariser that never answers."""

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""


@pytest.fixture
async def maker(tokenizers: TiktokenTokenizers) -> SummaryMaker:
    """Give a maker over forty rows."""
    history = MemoryHistory(lambda: tokenizers.counter("o200k_base"), lambda: NOW)
    await history.append("o", ROWS)
    return SummaryMaker(
        history=history,
        summaries=MemorySummaries(history, lambda: NOW),
        summarizer=Openings(),
        tokenizers=tokenizers,
        clock=lambda: NOW,
        settings=SummariesSettings(),
    )


async def test_a_summary_is_of_the_oldest_rows(maker: SummaryMaker) -> None:
    """It is kept, smaller than what it replaces, and says of which rows and times it is."""
    made = await maker.make(JOB)

    assert isinstance(made, NewSummary)
    summary = made.summary
    assert summary.message_ids == tuple(f"m{n}" for n in range(len(summary.message_ids)))
    assert made.kept == len(ROWS) - len(summary.message_ids)
    assert summary.tokens < made.replaced / 2
    assert (summary.created, summary.summarizer) == (NOW, "openings")
    assert await maker.summaries.read("o") == [summary]


async def test_the_next_one_is_of_what_has_none(maker: SummaryMaker) -> None:
    """As long as both have room; where too little is left, there is nothing to make."""
    first = await maker.make(JOB)
    assert isinstance(first, NewSummary)
    assert await maker.make(JOB) is SkipReason.NOT_NEEDED

    assert isinstance(maker.history, MemoryHistory)
    await maker.history.append("o", [row(n, "HUMAN", "more words " * 9) for n in range(40, 60)])
    second = await maker.make(JOB)
    assert isinstance(second, NewSummary)
    assert second.summary.message_ids[0] == f"m{len(first.summary.message_ids)}"


async def test_where_a_summary_has_no_room_none_is_made(maker: SummaryMaker) -> None:
    """The summariser isn't asked."""
    silent = replace(maker, summarizer=Hanging())
    assert await silent.make(replace(JOB, room=64)) is SkipReason.NOT_NEEDED


async def test_one_is_made_at_a_time(maker: SummaryMaker) -> None:
    """Who has the right keeps others from it, and gives it back however it ends."""
    assert await maker.summaries.claim("o", "another", 60)
    assert await maker.make(JOB) is SkipReason.BUSY
    await maker.summaries.release("o", "another")

    with pytest.raises(SummarizerError):
        await replace(maker, summarizer=Saying("")).make(JOB)
    assert isinstance(await maker.make(JOB), NewSummary)


async def test_a_history_that_changed_meanwhile_gets_none(maker: SummaryMaker) -> None:
    """A summary would contain text that is no longer shown."""
    assert isinstance(maker.history, MemoryHistory)
    meddling = replace(maker, summarizer=Meddling(maker.history))

    assert await meddling.make(JOB) is SkipReason.OVERTAKEN
    assert await maker.summaries.read("o") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [(" \n", "is empty"), ("\ud800 " + "far too many words " * 400, "is too long")],
)
async def test_what_is_no_use_is_not_kept(maker: SummaryMaker, text: str, said: str) -> None:
    """With the reason."""
    with pytest.raises(SummarizerError, match=said):
        await replace(maker, summarizer=Saying(text)).make(JOB)
    assert await maker.summaries.read("o") == []


async def test_a_summariser_has_its_time(maker: SummaryMaker) -> None:
    """After it there is no summary, and another may try."""
    settings = maker.settings.model_copy(update={"timeout_seconds": 0.01})
    with pytest.raises(SummarizerError, match=r"within 0\.01 seconds"):
        await replace(maker, summarizer=Hanging(), settings=settings).make(JOB)
