"""Rows pruned from their owner's context are reported once, and builds don't wait for it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from formatters.model import Row
from service.adapters.memory.store import MemoryHistory
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.aio import LARGE_TEXT
from service.build.account import Built
from service.build.after_answer import MAX_BUILDS
from service.builder import ContextBuilder
from service.config.settings import EventSettings
from service.ports.stores import Archiving
from service.wire.events import NO_CAUSE, EventMetadata
from service.wire.protocol import Topics
from service.worker import pruned_rows as pruned_module
from service.worker.pruned_rows import IDS_PER_HISTORY, MAX_IDS, PrunedRows, left_out
from tests.support import NOW, BrokenHistory, MakeBuilder, MakeRequest, row


@dataclass
class EventLog:
    """Records the events."""

    events: list[tuple[str, dict[str, Any], str, EventMetadata]] = field(default_factory=list)

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,
        run_id: str | None,
        cause: EventMetadata = NO_CAUSE,
    ) -> None:
        """Write an event down."""
        self.events.append((topic, dict(content), owner_key, cause))

    @property
    def removed(self) -> list[list[str]]:
        """Return the ids of each event."""
        pruned = Topics.CONTEXT_PRUNED
        return [
            content["removed_messages"] for topic, content, *_ in self.events if topic == pruned
        ]


class Asked(MemoryHistory):
    """Counts how often it is asked what fell out."""

    asked = 0

    async def flag_fallen(
        self, owner_key: str, ids: Sequence[str], *, archiving: Archiving | None = None
    ) -> list[str]:
        """Count, and answer."""
        self.asked += 1
        return await super().flag_fallen(owner_key, ids, archiving=archiving)


@pytest.fixture
def history(tokenizers: TiktokenTokenizers) -> Asked:
    """Return an empty history."""
    return Asked(lambda: tokenizers.counter("o200k_base"), lambda: NOW)


@pytest.fixture
def builder(make_builder: MakeBuilder, history: Asked) -> ContextBuilder:
    """Return a builder over that history."""
    return make_builder(sources={"history": history})


@pytest.fixture
def reported() -> EventLog:
    """Return a memory of events."""
    return EventLog()


def watching(builder: ContextBuilder, reported: EventLog, **settings: Any) -> PrunedRows:
    """Return what watches a builder's history."""
    chosen = EventSettings.model_validate(settings)
    return PrunedRows(builder.history, reported, builder.tokenizers, chosen)


def turns(count: int) -> list[Row]:
    """Return turns of two rows each."""
    rows = []
    for number in range(0, 2 * count, 2):
        run = f"r{number}"
        rows.append(row(number, "human", f"question {number}", run_id=run))
        rows.append(row(number + 1, "ai", f"answer {number}", run_id=run))
    return rows


def named(*numbers: int) -> list[str]:
    """Return the ids of rows."""
    return [f"m{number}" for number in numbers]


async def test_what_is_recalled_has_not_fallen_out(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """Rows in the recalled block are still there; only the others are reported as pruned."""
    await history.append("o", turns(40))
    request = make_request("On question 6?", strategy="relevance", memory_tokens=150)
    built = await builder.build_or_raise(request)
    (there,) = [d.message_ids for d in built.fitted.decisions if "m6" in d.message_ids]
    await watching(builder, reported).publish(built)

    (removed,) = reported.removed
    assert there == ("m6",)
    assert "m6" not in removed
    assert len(removed) == built.content.dropped


async def test_rows_that_are_counted_are_reported_too(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """With the sentence that the context has in their place, and only when others fall out."""
    await history.append("o", turns(10))
    watch = watching(builder, reported)
    strategy = {"name": "count_summary", "max_items": 4}
    request = make_request("x", strategy=strategy, memory_tokens=80)
    for _ in range(2):
        await watch.publish(await builder.build_or_raise(request))

    (_, pruned, *_), (topic, counted, owner, cause) = reported.events
    assert (topic, owner) == (Topics.CONTEXT_SUMMARIZED, "o")
    assert cause.request_id == request.id
    sentence = "Previous 18 turns: 9 user messages, 9 model responses, 0 tool calls"
    assert (counted["summary"], counted["message_ids"]) == (sentence, pruned["removed_messages"])
    assert (counted["summarized"], counted["kept"]) == (18, 2)
    built = await builder.build_or_raise(request)
    assert sentence in str(built.content.messages)


async def test_a_row_is_reported_when_it_first_falls_out(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """The second build with the same rows reports nothing; the next pruned row comes alone."""
    pruned = watching(builder, reported)
    await history.append("o", turns(4))
    for _ in range(2):
        await pruned.publish(await builder.build_or_raise(make_request(memory_limit=4)))
    assert reported.removed == [named(0, 1, 2, 3)]
    assert history.asked == 1

    await pruned.publish(await builder.build_or_raise(make_request(memory_limit=2)))
    await pruned.publish(await builder.build_or_raise(make_request(memory_limit=8)))
    await pruned.publish(await builder.build_or_raise(make_request(memory_limit=4)))
    assert reported.removed == [named(0, 1, 2, 3), named(4, 5)]


async def test_an_event_says_what_it_comes_from(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """Counts before and after, tokens of the texts, ids, run, request and build."""
    await history.append("o", turns(3))
    built = await builder.build_or_raise(make_request(memory_limit=4))
    await watching(builder, reported).publish(built)

    count = builder.tokenizers.counter("o200k_base").count
    ((topic, content, owner, cause),) = reported.events
    assert (topic, owner) == (Topics.CONTEXT_PRUNED, "o")
    assert content == {
        "original": 6,
        "annotated": 0,
        "final": 4,
        "removed": 2,
        "removed_messages": named(0, 1),
        "token_reduction": count("question 0") + count("answer 0"),
        "run_id": "run_q",
        "rows": None,
    }
    assert cause == EventMetadata(request_id="msg_q", build_id=built.content.build_id)


async def test_rows_are_sent_along_where_that_is_wanted(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """With `events.content` an event carries the rows as they are stored."""
    rows = turns(2)
    await history.append("o", rows)
    await watching(builder, reported, content=True).publish(
        await builder.build_or_raise(make_request(memory_limit=2))
    )
    assert reported.events[0][1]["rows"] == rows[:2]


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_only_rows_that_the_budget_or_a_limit_left_out_count(
    builder: ContextBuilder, make_request: MakeRequest, history: Asked, layout: str
) -> None:
    """Rows that are filtered, not read, of the run in flight or kept have not fallen out."""
    odd = [row(80, "system", "be kind"), row(81, "human", "before", run_id="run_q")]
    await history.append("o", [*turns(40), *odd])
    built = await builder.build_or_raise(make_request(memory_limit=2, layout=layout))

    assert built.gathered.history.not_read > 0
    out = left_out(built)
    assert out
    assert set(out) < set(named(*range(78)))
    assert set(out.values()) == {"memory_limit"}


async def test_a_history_that_the_request_brought_is_nobodys(
    builder: ContextBuilder, make_request: MakeRequest, history: Asked, reported: EventLog
) -> None:
    """Rows of `past` are not in the store, even where ids are the same."""
    await history.append("o", turns(3))
    built = await builder.build_or_raise(make_request(memory_limit=2, past=turns(3)))
    assert built.content.dropped
    await watching(builder, reported).publish(built)
    assert reported.events == []
    assert history.asked == 0


async def test_a_summarized_row_has_fallen_out(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """Rows that a sentence replaces are out of the context."""
    await history.append("o", turns(8))
    strategy = {"name": "count_summary", "max_items": 4}
    request = make_request(strategy=strategy, memory_limit=None, memory_tokens=120)
    await watching(builder, reported, archive=True).publish(await builder.build_or_raise(request))
    assert reported.removed == [named(*range(12))]
    assert {copy.reason for copy in await history.archived("o", 99)} == {"summarized"}


async def test_the_archive_is_kept_without_events(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """Both can be switched by themselves; with both off, nothing is even looked at."""
    await history.append("o", turns(3))
    built = await builder.build_or_raise(make_request(memory_limit=4))
    silent = watching(builder, reported, pruned=False)
    silent.queue.keep(built)
    await silent.queue.drain()
    assert history.asked == 0

    await watching(builder, reported, pruned=False, archive=True).publish(built)
    copies = await history.archived("o", 10)
    assert [(copy.row["id"], copy.reason, copy.run_id) for copy in copies] == [
        ("m1", "memory_limit", "run_q"),
        ("m0", "memory_limit", "run_q"),
    ]
    assert copies[0].build_id == built.content.build_id
    assert reported.events == []


async def test_it_is_done_in_the_background(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """Builds are kept until `run` gets to them; those that left nothing out are not."""
    pruned = watching(builder, reported)
    pruned.queue.keep(await builder.build_or_raise(make_request()))
    await history.append("o", turns(2))
    pruned.queue.keep(await builder.build_or_raise(make_request(memory_limit=2)))
    task = asyncio.create_task(pruned.queue.run())
    await pruned.queue.drain()
    task.cancel()
    await asyncio.wait([task])
    assert reported.removed == [named(0, 1)]


async def test_builds_beyond_a_bound_are_let_go(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """What waits is bounded, and it is logged what is lost."""
    await history.append("o", turns(2))
    built = await builder.build_or_raise(make_request(memory_limit=2))
    pruned = watching(builder, reported)
    with capture_logs() as lines:
        for _ in range(MAX_BUILDS + 1):
            pruned.queue.keep(built)
    assert [line["event"] for line in lines] == ["pruned.lost"]


async def test_a_store_that_is_away_costs_a_line(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """And the rows are reported with a later build."""
    await history.append("o", turns(2))
    built: Built = await builder.build_or_raise(make_request(memory_limit=2))
    pruned = watching(builder, reported)
    pruned._history = BrokenHistory()
    with capture_logs() as lines:
        await pruned.publish(built)
    assert [line["event"] for line in lines] == ["pruned.lost"]
    assert reported.events == []

    pruned._history = history
    await pruned.publish(built)
    assert reported.removed == [named(0, 1)]


async def test_an_outage_costs_two_lines(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """However many builds come meanwhile: one with the reason, one with their number."""
    await history.append("o", turns(2))
    built = await builder.build_or_raise(make_request(memory_limit=2))
    pruned = watching(builder, reported)
    pruned._history = BrokenHistory()
    with capture_logs() as lines:
        for _ in range(3):
            await pruned.publish(built)
        pruned._history = history
        await pruned.publish(built)
    assert [(line["event"], line.get("lost")) for line in lines] == [
        ("pruned.lost", None),
        ("pruned.resumed", 3),
    ]
    assert reported.removed == [named(0, 1)]


async def test_large_texts_are_counted_elsewhere(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """Their tokens come to the same in a thread."""
    long = "word " * (LARGE_TEXT // 5)
    await history.append("o", [row(0, "human", long), *turns(2)[2:]])
    await watching(builder, reported).publish(
        await builder.build_or_raise(make_request(memory_limit=2))
    )
    counted = builder.tokenizers.counter("o200k_base").count(long)
    assert reported.events[0][1]["token_reduction"] == counted


@pytest.mark.parametrize(
    ("most", "owners", "asked", "times"),
    [(IDS_PER_HISTORY + 2, "opo", 3, 2), (IDS_PER_HISTORY + 1, "oo", 2, 1)],
    ids=["all of them", "one history"],
)
async def test_what_is_remembered_is_bounded(
    builder: ContextBuilder,
    make_request: MakeRequest,
    reported: EventLog,
    history: Asked,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    owners: str,
    asked: int,
    times: int,
) -> None:
    """Old builds, or those before long histories, are looked up again, and reported once."""
    assert most < MAX_IDS
    monkeypatch.setattr(pruned_module, "MAX_IDS", most)
    pruned = watching(builder, reported)
    for owner in owners:
        await history.append(owner, turns(2))
        await pruned.publish(
            await builder.build_or_raise(make_request(owner_key=owner, memory_limit=2))
        )
    assert history.asked == asked
    assert reported.removed == [named(0, 1)] * times


async def test_a_build_that_leaves_out_nothing_new_does_not_wait(
    builder: ContextBuilder, make_request: MakeRequest, reported: EventLog, history: Asked
) -> None:
    """However many come, they take none of the places of those that do."""
    await history.append("o", turns(2))
    built = await builder.build_or_raise(make_request(memory_limit=2))
    pruned = watching(builder, reported)
    await pruned.publish(built)
    with capture_logs() as lines:
        for _ in range(MAX_BUILDS + 1):
            pruned.queue.keep(built)
    assert lines == []
