"""Two workers over one database, and workers that die: one summary, and the history whole."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from formatters.model import Message
from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import open_memory_bus
from service.app import open_builder, open_worker
from service.builder import ContextBuilder
from service.compaction.job import Job, find_job
from service.compaction.summarize import NewSummary, SkipReason
from service.config.settings import Settings
from service.wire.request import BuildRequest
from tests.openings import Openings
from tests.support import compactor_of, row

ROWS = [row(n, ("HUMAN", "AI")[n % 2], f"words of message {n} " * 6) for n in range(40)]


class Gated:
    """A summariser that waits until it is let go."""

    name = "gated"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Wait, then summarise."""
        self.asked.set()
        await self.go.wait()
        return await Openings().summarize(messages, max_tokens=max_tokens)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a database that two workers share."""
    return Settings.model_validate({"store": {"url": f"sqlite:///{tmp_path / 'history.db'}"}})


def request() -> BuildRequest:
    """Ask for a context in which the history does not fit."""
    context = {"strategy": "summarization", "memory_tokens": 600, "memory_limit": None}
    content = {"current_input": "Well?", "context": {**context, "explain": True}}
    return BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})


async def job(builder: ContextBuilder) -> Job:
    """Return what a build shows to be needed."""
    found = find_job(await builder.build_or_raise(request()))
    assert found
    return found


async def test_two_workers_at_once_make_one_summary(settings: Settings) -> None:
    """While one summarises an owner's history, another leaves it alone."""
    gated = Gated()
    async with (
        open_builder(settings, summarizer=gated) as first,
        open_builder(settings, summarizer=Openings()) as second,
    ):
        await first.history.append("o", ROWS)
        asked = await job(first)
        making = asyncio.create_task(compactor_of(first).make(asked))
        await gated.asked.wait()

        assert await compactor_of(second).make(asked) is SkipReason.BUSY
        gated.go.set()

        made = await making
        assert isinstance(made, NewSummary)
        assert second.sources.summaries
        assert await second.sources.summaries.read("o") == [made.summary]


async def test_a_worker_whose_time_is_over_is_overtaken(settings: Settings) -> None:
    """Where two are at it all the same, the first to finish is kept and the other is not."""
    slow = Gated()
    async with (
        open_builder(settings, summarizer=slow) as first,
        open_builder(settings, summarizer=Openings()) as second,
    ):
        await first.history.append("o", ROWS)
        assert second.sources.summaries
        asked = await job(first)
        making = asyncio.create_task(compactor_of(first).make(asked))
        await slow.asked.wait()
        # as if the lease had run out
        database: Any = compactor_of(first)._maker.summaries
        await database._database.write(lambda found: found.exec_driver_sql("DELETE FROM claims"))

        made = await compactor_of(second).make(asked)
        slow.go.set()

        assert isinstance(made, NewSummary)
        assert await making is SkipReason.OVERTAKEN
        assert await second.sources.summaries.read("o") == [made.summary]


async def test_a_worker_that_dies_leaves_the_history_whole(settings: Settings) -> None:
    """Killed between summarising and keeping, it leaves no summary, and the next one makes it."""
    gated = Gated()
    async with open_builder(settings, summarizer=gated) as dying:
        await dying.history.append("o", ROWS)
        assert (await dying.build(request())).content.status == "success"
        await gated.asked.wait()
        compactor_of(dying).drain = never_wait  # type: ignore[method-assign]

    async with open_builder(settings, summarizer=Openings()) as builder:
        assert (await builder.history.recent("o")).total == len(ROWS)
        assert builder.sources.summaries
        assert await builder.sources.summaries.read("o") == []
        assert (await builder.build(request())).content.status == "success"
        await compactor_of(builder).drain()
        (summary,) = await builder.sources.summaries.read("o")

        content: Any = (await builder.build(request())).content

    assert summary.message_ids[0] == "m0"
    assert content.decisions[0].decision == "summarized"
    assert "[CONTEXT SUMMARY - Generated: " in content.messages[2]["content"]


async def never_wait() -> None:
    """End at once, as a process does that is killed."""


async def test_rows_that_come_late_are_not_covered(settings: Settings) -> None:
    """A row that came into the stretch while it was summarised stops the summary."""
    gated = Gated()
    async with open_builder(settings, summarizer=gated) as builder:
        await builder.history.append("o", ROWS)
        asked = await job(builder)
        making = asyncio.create_task(compactor_of(builder).make(asked))
        await gated.asked.wait()
        await builder.history.append("o", [row(0, "HUMAN", "late", id="late")])
        gated.go.set()
        assert await making is SkipReason.OVERTAKEN

        made = await compactor_of(builder).make(await job(builder))

    assert isinstance(made, NewSummary)
    assert "late" in made.summary.covers


async def test_a_worker_reports_its_summaries_on_the_bus(settings: Settings) -> None:
    """After the answer, on `context.compacted`, with what was saved."""
    async with open_builder(settings) as builder:
        await builder.history.append("o", ROWS)
    asked = {"strategy": "summarization", "memory_tokens": 600, "memory_limit": None}
    content = {"current_input": "Well?", "context": asked}
    payload = json.dumps({"id": "q", "owner_key": "o", "content": content}).encode()
    stop = asyncio.Event()
    async with (
        open_memory_bus(BusOptions()) as bus,
        open_worker(settings, bus) as worker,
        bus.subscribe("context.compacted") as heard,
    ):
        working = asyncio.create_task(worker.run(stop))
        await bus.submit(payload)
        async with asyncio.timeout(60):
            reported = json.loads(await anext(aiter(heard)))
        stop.set()
        assert await working

    assert reported["owner_key"] == "o"
    assert reported["metadata"]["request_id"] == "q"
    assert reported["content"]["original_tokens"] > reported["content"]["new_tokens"]
    assert reported["content"]["summarizer"] == "extractive"
