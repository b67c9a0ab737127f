"""Which builds show that a history needs a summary."""

from dataclasses import replace
from typing import Any

import pytest

from formatters.model import Summary
from service.adapters.memory.store import MemoryHistory
from service.builder import ContextBuilder
from service.compaction.job import Job, find_job
from service.wire.request import BuildRequest
from tests.support import NOW, MakeBuilder, row

ROWS = [row(n, ("HUMAN", "AI")[n % 2], "words") for n in range(40)]


class Given:
    """The summaries that a test gives."""

    def __init__(self, *covered: range) -> None:
        self._summaries = [
            Summary(
                id=f"s{ids.start}",
                owner_key="o",
                text="said",
                message_ids=tuple(f"m{n}" for n in ids),
                tokens=1,
                created=NOW,
                summarizer="test",
                fingerprint="",
            )
            for ids in covered
        ]

    async def read(self, owner_key: str, conversation_id: str | None = None) -> list[Summary]:
        """Return them."""
        return self._summaries


@pytest.fixture
def make(make_builder: MakeBuilder) -> Any:
    """Make a job of a build over forty rows."""

    async def asked(*covered: range, force: bool = False, **context: Any) -> Job | None:
        sources = {"summaries": Given(*covered)}
        builder: ContextBuilder = make_builder(sources=sources)
        assert isinstance(builder.history, MemoryHistory)
        await builder.history.append("o", ROWS)
        options = {"strategy": "summarization", **context}
        content = {"current_input": "Well?", "context": options}
        named = {"id": "q", "run_id": "run_q", "owner_key": "o", "conversation_id": None}
        request = BuildRequest.model_validate({**named, "content": content})
        return find_job(await builder.build_or_raise(request), force=force)

    return asked


async def test_only_strategies_that_use_summaries_need_any(make: Any) -> None:
    """And only for what is stored."""
    assert await make(strategy="oldest_first") is None
    assert await make(past=list(ROWS)) is None
    assert await make(strategy="oldest_first", force=True) is None
    assert await make(strategy=["tool_result_clearing", "summarization"]) is not None


async def test_rows_beyond_the_limit_and_unread_ones_need_a_summary(make: Any) -> None:
    """Until one covers them: they are in no context whatever the budget is."""
    assert await make() is not None
    assert await make(memory_limit=None) is None
    assert await make(memory_limit=None, force=True) is not None
    assert await make(range(20)) is None
    assert await make(range(19)) is not None
    assert await make(memory_limit=5) is not None
    assert await make(range(35), memory_limit=5) is None


async def test_a_job_reports_what_the_build_had(make: Any) -> None:
    """The tokens that history could have had, its layout, and the run that goes on."""
    job = await make(memory_tokens=500)
    assert (job.room, job.layout, job.rows, job.run_id) == (500, "tagged", 40, "run_q")
    chat = await make(layout="chat")
    assert chat.layout == "chat"
    assert 3_000 < chat.room < 6_000
    assert chat.key == replace(chat, room=chat.room + 1).key
    assert chat.key != replace(chat, room=chat.room * 2).key
