"""Summaries are made when answers are out; failures are logged, and harm no build."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from formatters.model import Message, Row
from service.adapters.memory.store import MemoryHistory, MemorySummaries
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.builder import ContextBuilder
from service.compaction.compactor import Compactor, running_compactor
from service.compaction.job import find_job
from service.compaction.summarize import NewSummary, SkipReason, SummaryMaker
from service.config.content import SummariesSettings
from service.errors import StoreError, SummarizerError
from service.ports.stores import HistoryPage
from service.wire.events import NO_CAUSE, Compacted, EventMetadata, Summarized
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.openings import Openings
from tests.support import NOW, MakeBuilder, Noted, row

ROWS = [row(n, ("HUMAN", "AI")[n % 2], f"words of message {n} " * 6) for n in range(40)]


class Telling:
    """A summariser that does what a test says, and notes what it was asked."""

    name = "telling"

    def __init__(self) -> None:
        self.tells: str | Exception | None = None
        self.asked: list[Sequence[Message]] = []

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return it, raise it, or return how messages begin."""
        self.asked.append(messages)
        if isinstance(self.tells, Exception):
            raise self.tells
        if self.tells is not None:
            return self.tells
        return await Openings().summarize(messages, max_tokens=max_tokens)


class Heard:
    """Events as they were logged."""

    def __init__(self) -> None:
        self.published: dict[str, Mapping[str, Any]] = {}

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,
        run_id: str | None,
        cause: EventMetadata = NO_CAUSE,
    ) -> None:
        """Note an event."""
        assert owner_key == "o"
        self.published[str(topic)] = content


class Frail(MemoryHistory):
    """A history that can be taken away."""

    away = False

    async def recent(self, *args: Any, **options: Any) -> HistoryPage:
        """Return a page, or fail."""
        if self.away:
            raise StoreError("away")
        return await super().recent(*args, **options)


class Case:
    """A builder with a long history, its compactor, and the bus and store of both."""

    def __init__(self, make_builder: MakeBuilder, tokenizers: TiktokenTokenizers) -> None:
        self.history = Frail(lambda: tokenizers.counter("o200k_base"), lambda: NOW)
        self.summaries = MemorySummaries(self.history, lambda: NOW)
        self.summarizer = Telling()
        self.events = Heard()
        self.metrics = Noted()
        given = {"history": self.history, "summaries": self.summaries}
        self.builder: ContextBuilder = make_builder(sources=given)
        self.compactor = self.compacting()

    def compacting(self, **settings: Any) -> Compactor:
        """Make a compactor under other settings, and give it to the builder."""
        maker = SummaryMaker(
            history=self.history,
            summaries=self.summaries,
            summarizer=self.summarizer,
            tokenizers=self.builder.tokenizers,
            clock=lambda: NOW,
            settings=SummariesSettings.model_validate(settings),
        )
        lacking = self.builder.sources.failed_scopes
        self.compactor = Compactor(maker, lacking, self.events, self.metrics)
        self.builder = replace(self.builder, after_answer=(self.compactor,))
        return self.compactor

    async def build(self, **context: Any) -> BuildSuccess:
        """Build, and wait until what it needs has been made."""
        asked = {"strategy": "summarization", "memory_tokens": 600, "memory_limit": None}
        content = {"current_input": "Well?", "context": {**asked, "explain": True, **context}}
        named = {"id": "q", "run_id": "run_q", "owner_key": "o", "content": content}
        answer = await self.builder.build(BuildRequest.model_validate(named))
        await self.compactor.drain()
        assert answer.content.status == "success"
        return answer.content

    async def append(self, *rows: Row) -> None:
        """Store rows."""
        await self.history.append("o", rows)


@pytest.fixture
async def case(make_builder: MakeBuilder, tokenizers: TiktokenTokenizers) -> AsyncIterator[Case]:
    """Return a case whose compactor runs."""
    made = Case(make_builder, tokenizers)
    await made.append(*ROWS)
    async with running_compactor(made.compactor):
        yield made


def codes(content: BuildSuccess) -> list[str]:
    """Return the codes of warnings."""
    return [warning.code for warning in content.warnings]


async def test_the_next_build_has_the_summary(case: Case) -> None:
    """The first build leaves turns out, the next one says what was in them."""
    before = await case.build()
    after = await case.build()

    assert {each.decision for each in before.decisions} >= {"dropped"}
    (summary,) = await case.summaries.read("o")
    assert summary.generation == 1
    assert summary.message_ids == tuple(f"m{n}" for n in range(len(summary.message_ids)))
    assert (summary.first_timestamp, summary.summarizer) != (None, "")
    summarized = [d for d in after.decisions if d.decision == "summarized"]
    assert {d.reason for d in summarized} == {"in_summary"}
    assert summary.covers >= {id_ for d in summarized for id_ in d.message_ids}
    text = after.messages[2]["content"]
    assert isinstance(text, str)
    assert "\n\n[CONTEXT SUMMARY - Generated: 2025-12-10 08:00]\n" in text
    assert after.usage.blocks["SHARED_MEMORY"] <= 600
    assert codes(after) == []


async def test_in_chat_the_summary_is_a_stable_message(case: Case) -> None:
    """It opens the history as a user's message, and a provider may cache it."""
    await case.build(layout="chat")
    first, second = await case.build(layout="chat"), await case.build(layout="chat")

    assert first.messages[2] == second.messages[2]
    assert first.messages[2]["role"] == "user"
    assert str(first.messages[2]["content"]).startswith("[CONTEXT SUMMARY - Generated: ")
    blocks = list(first.usage.blocks)
    assert blocks.index("SUMMARY") == blocks.index("HISTORY") - 1
    assert first.usage.cacheable_prefix >= first.usage.blocks["SUMMARY"] + 1_000


async def test_every_summary_that_is_requested_is_counted(case: Case) -> None:
    """By what came of it: it was made, its summariser failed, or others were first."""
    await case.build()
    assert case.metrics.counted == ["summary_requests made"]

    case.summarizer.tells = SummarizerError("no")
    await case.append(*(row(n, "HUMAN", "words " * 60) for n in range(60, 90)))
    await case.build()
    assert case.metrics.counted[1:] == ["summary_requests failed"]


async def test_both_events_are_reported(case: Case) -> None:
    """With the ids, the stretch of time, and what was saved."""
    await case.build()
    (summary,) = await case.summaries.read("o")

    summarized, compacted = case.events.published.values()
    assert Summarized.model_validate(summarized).message_ids == list(summary.message_ids)
    assert Compacted.model_validate(compacted).new_tokens == summary.tokens
    assert list(case.events.published) == ["context.summarized", "context.compacted"]
    assert summarized["message_ids"] == list(summary.message_ids)
    assert summarized["summarized"] + summarized["kept"] == len(ROWS)
    assert (summarized["summary"], summarized["run_id"]) == (summary.text, "run_q")
    assert summarized["from"] == "2025-12-09T00:00:00Z"
    assert (summarized["generation"], compacted["summarizer"]) == (1, "telling")
    assert compacted["original_tokens"] > compacted["new_tokens"] == summary.tokens
    assert compacted["messages_summarized"] == summarized["summarized"]


async def test_summaries_are_made_of_rows_alone(case: Case) -> None:
    """New ones are for new rows; once they fill their share one is made of all rows again."""
    for n in range(40, 160, 4):
        await case.build()
        await case.append(*(row(n + k, ("HUMAN", "AI")[k % 2], "words " * 30) for k in range(4)))
    summaries = await case.summaries.read("o")

    covered = [id_ for summary in summaries for id_ in summary.message_ids]
    assert covered == [f"m{n}" for n in range(len(covered))]
    assert len(covered) > 100
    assert any(messages[0].id == "m0" for messages in case.summarizer.asked[1:])
    assert any(messages[0].id != "m0" for messages in case.summarizer.asked)
    said = {message.content for messages in case.summarizer.asked for message in messages}
    assert not said & {summary.text for summary in summaries}
    assert {summary.generation for summary in summaries} == {1}
    assert (await case.history.recent("o")).total == 160


@pytest.mark.parametrize("tells", ["", "  \n", "longer " * 3_000, SummarizerError("down")])
async def test_a_summary_that_is_no_use_is_not_kept(case: Case, tells: str | Exception) -> None:
    """Builds go on as `oldest_first`, and warn until an attempt succeeds, ever less often made."""
    case.summarizer.tells = tells
    with capture_logs() as lines:
        first = await case.build()
    second = await case.build()

    assert codes(first) == []
    assert codes(second) == ["summary_unavailable"]
    assert [d.decision for d in first.decisions] == [d.decision for d in second.decisions]
    assert [line["event"] for line in lines] == ["summary.failed"]
    assert await case.summaries.read("o") == []
    assert (await case.history.recent("o")).total == len(ROWS)

    case.summarizer.tells = None
    for _ in range(2):
        assert codes(await case.build()) == ["summary_unavailable"]
    assert codes(await case.build()) == []
    assert len(await case.summaries.read("o")) == 1


async def test_a_summariser_that_hangs_is_given_up(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time the builds go on without, and warn."""

    async def hang(*_args: object, **_options: object) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(case.summarizer, "summarize", hang)
    async with running_compactor(case.compacting(timeout_seconds=0.01)):
        await case.build()
        assert codes(await case.build()) == ["summary_unavailable"]


async def test_a_summariser_that_breaks_its_word_ends_nothing(case: Case) -> None:
    """An error that it must not raise is logged, and the next summary is made."""
    case.summarizer.tells = RuntimeError("unforeseen")
    with capture_logs() as lines:
        await case.build()
    assert [line["event"] for line in lines] == ["summary.broken"]
    assert codes(await case.build()) == ["summary_unavailable"]

    case.summarizer.tells = None
    for _ in range(2):
        await case.build()
    assert len(await case.summaries.read("o")) == 1


async def test_a_store_that_is_away_is_reported(case: Case) -> None:
    """Rows that can't be read are a failure like any other."""
    job = find_job(await built(case))
    assert job
    case.history.away = True
    with pytest.raises(StoreError):
        await case.compactor.make(job)
    case.history.away = False
    assert isinstance(await case.compactor.make(job), NewSummary)
    assert await case.summaries.claim("o", "free again", 1)


async def built(case: Case) -> Any:
    """Build what needs a summary, and have none made."""
    context = {"strategy": "summarization", "memory_tokens": 600, "memory_limit": None}
    content = {"current_input": "Well?", "context": context}
    named = {"id": "q", "run_id": "run_q", "owner_key": "o", "content": content}
    return await case.builder.build_or_raise(BuildRequest.model_validate(named))


async def test_what_could_not_be_done_is_not_tried_each_time(case: Case) -> None:
    """Where no summary has room, the history is looked at again once it has grown."""
    tried = []
    make = case.compactor._maker.make

    async def counted(job: Any) -> Any:
        tried.append(await make(job))
        return tried[-1]

    object.__setattr__(case.compactor, "_maker", Counted(counted))
    for tokens in (70, 64, 75):  # as inputs of another length leave other room
        await case.build(memory_tokens=tokens)
    assert tried == [SkipReason.NOT_NEEDED]

    await case.append(*(row(n, "HUMAN", "words") for n in range(40, 50)))
    await case.build(memory_tokens=64)
    assert tried == [SkipReason.NOT_NEEDED] * 2


async def test_listeners_that_fail_spoil_no_summary(case: Case) -> None:
    """It is kept, and no build says that it could not be made."""

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("nobody there")

    case.events.publish = fail  # type: ignore[method-assign] # an odd listener
    await case.build()

    assert len(await case.summaries.read("o")) == 1
    assert codes(await case.build()) == []


class Counted:
    """A maker whose attempts are counted."""

    def __init__(self, make: Any) -> None:
        self.make = make


async def test_what_waits_is_bounded(case: Case) -> None:
    """Of more histories than may wait one is put off, and nobody waits for a slot."""
    idle = case.compacting(max_waiting=1)
    first = await built(case)
    other = replace(first, request=first.request.model_copy(update={"owner_key": "p"}))
    with capture_logs() as lines:
        idle.keep(first)
        idle.keep(first)
        idle.keep(other)
    assert [line["event"] for line in lines] == ["summary.postponed"]


async def test_a_drain_is_bounded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends doesn't wait for a summary for long."""
    monkeypatch.setattr("service.build.after_answer.DRAIN_SECONDS", 0.01)
    idle = case.compacting()
    idle.keep(await built(case))
    await idle.drain()
    assert await case.summaries.read("o") == []


async def test_summaries_can_be_switched_off(case: Case) -> None:
    """Then none is made, and those that there are go on to be shown."""
    await case.build()
    off = case.compacting(enabled=False)
    async with running_compactor(off):
        await case.append(*(row(n, "HUMAN", "words " * 40) for n in range(40, 60)))
        content = await case.build()
    assert len(await case.summaries.read("o")) == 1
    assert "[CONTEXT SUMMARY - Generated: " in str(content.messages[2]["content"])


async def test_another_at_it_is_left_alone(case: Case) -> None:
    """While the right is another's, nothing is made and nothing is wrong."""
    await case.summaries.claim("o", "other", 60)
    await case.build()
    assert codes(await case.build()) == []
    assert case.summarizer.asked == []


async def test_what_changes_meanwhile_is_made_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that comes while a summary is made stops it, which is no failure."""

    async def interrupted(*_args: object, **_options: object) -> str:
        await case.append(row(0, "HUMAN", "late", id="late"))
        return "They said words."

    with monkeypatch.context() as patched:
        patched.setattr(case.summarizer, "summarize", interrupted)
        await case.build()
    assert await case.summaries.read("o") == []
    assert codes(await case.build()) == []
    (summary,) = await case.summaries.read("o")
    assert "late" in summary.covers
    assert case.compactor.idle


async def test_the_newest_turn_is_never_summarised(case: Case) -> None:
    """Not even where it is all that there is, and it is requested."""
    await case.history.erase("o")
    await case.append(ROWS[0])
    job = find_job(await built(case), force=True)
    assert job
    assert await case.compactor.make(job) is SkipReason.NOT_NEEDED


async def test_a_late_row_gets_a_summary_too(case: Case) -> None:
    """Though it lies among rows that have one."""
    await case.build()
    late = [row(0, "HUMAN", f"late {n} " * 40, id=f"late{n}", run_id=None) for n in range(8)]
    await case.append(*late)
    for _ in range(3):
        await case.build()
    covered = {id_ for each in await case.summaries.read("o") for id_ in each.message_ids}
    assert "late0" in covered
