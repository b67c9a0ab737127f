"""What of a history a build reads where rows of older turns are recalled."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from formatters.model import Row
from service.adapters.memory.store import MemoryHistory
from service.budget.decisions import Decision
from service.build.account import Built
from service.build.history_reader import SEARCHED_ROWS
from service.builder import ContextBuilder
from service.config.settings import MemorySettings, Settings
from service.ports.stores import HistoryPage
from service.wire.recall import RecallRequest
from service.wire.request import BuildRequest
from tests.support import MakeBuilder, MakeRequest, row

#: Rows of the history, up to which one is read whole, and that are read at most.
ROWS, WHOLE, MOST = 300, 100, 150
KEY = "The spare key of the cabin lies under the blue flowerpot"
FILLING = "We talked about the weather, and about soup, and about nothing much at all"
SETTINGS = Settings(memory=MemorySettings(whole_rows=WHOLE, max_rows=MOST))


def history(length: int = ROWS) -> list[Row]:
    """Return rows a minute apart, one of them about a key."""
    return [
        row(n, "ai" if n % 2 else "human", KEY if n == 30 else f"{FILLING} {n}", run_id=f"r{n}")
        for n in range(length)
    ]


@pytest.fixture
def builder(make_builder: MakeBuilder) -> ContextBuilder:
    """Return a builder that searches histories of more than n rows."""
    return make_builder(settings=SETTINGS)


async def built(
    builder: ContextBuilder, make_request: MakeRequest, said: str, rows: Sequence[Row]
) -> Built:
    """Build over a history."""
    await builder.history.append("o", rows)
    options: dict[str, Any] = {"strategy": "relevance", "memory_tokens": 400, "explain": True}
    return await builder.build_or_raise(make_request(said, **options))


def unread(found: Built) -> list[Decision]:
    """Return the decisions on rows that were not read."""
    return [each for each in found.content.decisions if each.decision == "not_read"]  # type: ignore[misc]


async def test_a_long_history_is_searched(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Found rows precede the newest rows, in order, none twice; the rest is counted."""
    found = await built(builder, make_request, "Where is the spare key?", history())

    read = [message.id for message in found.gathered.history.messages]
    assert 0 < (found.gathered.history.found or 0) < len(read) <= MOST
    assert len(set(read)) == len(read)
    assert read == sorted(read, key=lambda name: int(name[1:]))
    assert {"m29", "m30", "m31", f"m{ROWS - 1}"} <= set(read)
    assert "m200" not in read
    (rest,) = unread(found)
    assert rest.count == ROWS - len(read)
    assert any(KEY in str(message["content"]) for message in found.content.messages)
    assert found.content.warnings == []


@pytest.mark.parametrize("is_call", [True, False])
async def test_tools_in_a_long_history_are_searched(
    builder: ContextBuilder, make_request: MakeRequest, is_call: bool
) -> None:
    """What only a result, or the second argument of a call, has is shown, also by recalls."""
    rows = history()
    arguments = {"path": "notes", "text": KEY} if is_call else {}
    calls = [{"id": "1", "name": "note", "arguments": arguments}]
    rows[30] = row(30, "ai", "", metadata={"tool_calls": calls})
    said = "done" if is_call else KEY
    rows[31] = row(31, "tool", said, run_id="r30", metadata={"tool_call_id": "1"})
    found = await built(builder, make_request, "Where is the spare key?", rows)

    read = [message.id for message in found.gathered.history.messages]
    assert {"m30", "m31"} <= set(read)
    assert len(read) < MOST
    assert any(KEY in str(message["content"]) for message in found.content.messages)
    raw = {"owner_key": "o", "content": {"query": "Where is the spare key?"}}
    answer = (await builder.recall(RecallRequest.model_validate(raw))).content
    assert answer.status == "success"
    assert KEY in answer.text


async def test_of_a_long_history_many_rows_are_found(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Recalled rows are chosen from n found rows, even if few of them fit."""
    whole = MemorySettings().whole_rows
    said = {0: KEY}  # of each four rows one
    rows = [row(n, "human", said.get(n % 4, FILLING), run_id=f"r{n}") for n in range(whole + 200)]
    found = await built(make_builder(), make_request, "Where is the key?", rows)

    assert found.gathered.history.found == SEARCHED_ROWS


async def test_hits_take_the_place_of_most_newest_rows(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Unless there are few, or the strategy shows newest turns for their age."""
    texts = {0: KEY, 2: "Zanzibar"}  # of each four rows one, and a single one
    rows = [
        {**each, "content": texts.get(n % 4 and n, FILLING)} for n, each in enumerate(history())
    ]
    await builder.history.append("o", rows)
    newest: list[int] = []
    for said, share in (("the key", 0.0), ("the key", 0.5), ("Zanzibar", 0.0)):
        strategy = {"name": "relevance", "recent_share": share}
        request = make_request(said, strategy=strategy, memory_tokens=400)
        read = (await builder.build_or_raise(request)).gathered.history
        newest.append(len(read.messages) - (read.found or 0))
    # the row that reaches the part is one more
    assert (newest[0] - 1) * 4 < newest[1] == newest[2]


async def test_a_long_history_that_fits_is_read_whole(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """So is one of which the most rows fit; neither is searched."""
    rows = [
        {**each, "content": "short" if n > 200 else FILLING} for n, each in enumerate(history())
    ]
    await builder.history.append("o", rows[-MOST:])
    request = make_request("the key", strategy="relevance", memory_tokens=4_000)
    read = (await builder.build_or_raise(request)).gathered.history
    assert (len(read.messages), read.found, read.not_read) == (MOST, None, 0)

    await builder.history.append("p", rows)
    request = make_request("the key", owner_key="p", strategy="relevance", memory_tokens=4_000)
    built = await builder.build_or_raise(request)
    assert (built.gathered.history.found, built.gathered.history.not_read) == (None, ROWS - MOST)
    assert [warning.code for warning in built.content.warnings] == ["history_capped"]


async def test_a_short_history_takes_one_read(
    builder: ContextBuilder, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second build on, and until it is long."""
    reads: list[int | None] = []
    recent = MemoryHistory.recent

    async def counted(store: MemoryHistory, *scope: Any, **bounds: Any) -> HistoryPage:
        reads.append(bounds["max_rows"])
        return await recent(store, *scope, **bounds)

    monkeypatch.setattr(MemoryHistory, "recent", counted)
    rows, counts, read = history(), [], []
    for added in (rows[: WHOLE - 1], [], rows[WHOLE - 1 :], []):
        reads.clear()
        history_read = (await built(builder, make_request, "the key", added)).gathered.history
        counts.append(len(reads))
        read.append((len(history_read.messages), history_read.found is None))

    assert read[:2] == [(WHOLE - 1, True)] * 2
    # of the long one, its new rows are read once, and then a part of them
    assert read[2] == read[3] != read[0]
    assert (counts[0] - counts[1], counts[2] - counts[3]) == (1, 1)


async def test_builds_at_once_see_that_a_history_became_long(
    builder: ContextBuilder, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them, as reads of a store overlap."""
    rows, recent = history(), MemoryHistory.recent

    async def slow(store: MemoryHistory, *scope: Any, **bounds: Any) -> HistoryPage:
        page = await recent(store, *scope, **bounds)
        await asyncio.sleep(0.01)
        return page

    monkeypatch.setattr(MemoryHistory, "recent", slow)
    await built(builder, make_request, "the key", rows[:8])
    await builder.history.append("o", rows)
    both = (built(builder, make_request, "the key", ()) for _ in range(2))
    found = [each.gathered.history.found for each in await asyncio.gather(*both)]

    assert None not in found


async def test_a_row_of_the_run_is_no_newest_turn(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """The newest turn before it is read whole, however long it is."""
    long = [
        row(n, "human" if n == ROWS else "ai", FILLING, run_id="long") for n in range(ROWS, 315)
    ]
    asked = row(400, "human", "Where is the key?", run_id="run_q")
    await builder.history.append("o", [*history(), *long, asked])
    request = make_request("Where is the key?", strategy="relevance", memory_tokens=400)
    read = (await builder.build_or_raise(request)).gathered.history
    assert {each["id"] for each in long} <= {message.id for message in read.messages}


async def test_a_full_page_and_hits_are_no_more_than_the_most_rows(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """With few hits all newest rows are candidates, and the oldest hits give way."""
    memory = MemorySettings(whole_rows=WHOLE, max_rows=20)
    builder = make_builder(settings=Settings(memory=memory))
    rows = [{**each, "content": KEY if n < 240 else FILLING} for n, each in enumerate(history())]
    await builder.history.append("o", rows)
    request = make_request("the key", strategy="relevance", memory_tokens=400)
    read = (await builder.build_or_raise(request)).gathered.history

    assert len(read.messages) == 20


async def test_a_question_without_words_is_searched_with_those_of_the_last_turn(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """The last messages give a question its meaning."""
    rows = [*history(), row(ROWS, "human", "Tell me of the flowerpot", run_id="last")]
    found = await built(builder, make_request, "and where was that?", rows)
    assert "m30" in {message.id for message in found.gathered.history.messages}


@pytest.mark.parametrize(("length", "said"), [(WHOLE, "Where is the key?"), (ROWS, "…?")])
async def test_there_may_be_nothing_to_search_for(
    builder: ContextBuilder, make_request: MakeRequest, length: int, said: str
) -> None:
    """A short history is read whole, and a question without any word asks for nothing."""
    rows = [each for each in history(length) if length == WHOLE or each["content"] != KEY]
    rows = rows if length == WHOLE else [{**each, "content": "…"} for each in rows]
    found = await built(builder, make_request, said, rows)
    read = found.gathered.history
    assert (read.not_read == 0) is (length == WHOLE)
    assert not read.found


class Growing(MemoryHistory):
    """A history to which a row is added between two reads of a build."""

    async def search(self, owner_key: str, *args: Any, **options: Any) -> list[Row]:
        """Search when the newest row of the page is there a second time, as if it were older."""
        found = await super().search(owner_key, *args, **options)
        page = await self.recent(owner_key, max_rows=1)
        return [*page.rows, *found]


async def test_a_row_that_was_read_already_is_not_read_again(
    make_builder: MakeBuilder, make_request: MakeRequest, builder: ContextBuilder
) -> None:
    """Though a search may come upon it, where the history has changed meanwhile."""
    store = Growing(lambda: builder.tokenizers.counter("o200k_base"), builder.clock)
    growing = make_builder(settings=SETTINGS, sources={"history": store})
    found = await built(growing, make_request, "Where is the spare key?", history())
    read = [message.id for message in found.gathered.history.messages]
    assert len(set(read)) == len(read)
    assert read[-1] == f"m{ROWS - 1}"


class Watched(MemoryHistory):
    """A history that knows which rows were read by their ids."""

    by_ids: Sequence[str] = ()

    async def rows(self, owner_key: str, ids: Sequence[str], *, pruned: bool = True) -> list[Row]:
        """Read rows, and note which."""
        self.by_ids = ids
        return await super().rows(owner_key, ids, pruned=pruned)


def run_rows(minute: int) -> list[dict[str, Any]]:
    """Return an input, and four calls with their results, with the ids that they are stored by."""
    now: dict[str, Any] = {"run_id": "now"}
    rows = [dict(row(minute, "human", "Find all of them", **now), id="input")]
    for n in range(4):
        call = {"tool_calls": [{"id": f"c{n}", "name": "find", "arguments": {"number": n}}]}
        result = {"tool_call_id": f"c{n}"}
        rows += [
            dict(row(minute + 1, "ai", "", **now, metadata=call), id=f"call{n}"),
            dict(row(minute + 2, "tool", f"found {n}", **now, metadata=result), id=f"result{n}"),
        ]
    return rows


@pytest.mark.parametrize(
    ("minute", "conversation", "stored", "most", "not_read"),
    [
        (300, None, 9, 5, 100),  # a run that is longer than what is read
        (100, None, 9, 20, 80),  # a run that is older than the history, by its times
        (300, None, 0, 20, 80),  # a run that isn't stored
        (300, None, 6, 4, 100),  # a run that is stored in part
        (300, "here", 9, 5, 100),
    ],
)
async def test_messages_of_the_run_are_not_counted_as_history(
    make_builder: MakeBuilder,
    minute: int,
    conversation: str | None,
    stored: int,
    most: int,
    not_read: int,
) -> None:
    """Where they are stored and weren't read, as the context shows them anyway."""
    builder = make_builder(settings=Settings(memory=MemorySettings(limit=None, max_rows=most)))
    run = run_rows(minute)
    past = [row(n, "human", f"{FILLING} {n}") for n in range(200, 300)]
    await builder.history.append("o", [*past, *run[:stored]], conversation_id=conversation)
    # of another conversation, which doesn't count
    await builder.history.append("o", [dict(row(0, "human", "x"), id="other")], conversation_id="b")
    context = {"explain": True, "recall_tool": True, "memory_tokens": 4_000}
    content = {"history": run, "metadata": {"context": context}}
    request = {"owner_key": "o", "conversation_id": conversation}
    found = await builder.build_or_raise(
        BuildRequest.model_validate({**request, "content": content})
    )

    # without a conversation all are in scope
    other = conversation is None
    assert [each.count for each in unread(found)] == [not_read + other]
    decided = {id_ for each in found.content.decisions for id_ in each.message_ids}
    assert len(decided - {"input"}) + not_read + other == 100 + other + 8
    note = f"({not_read + other} earlier messages are not shown; call recall"
    assert any(note in str(message["content"]) for message in found.content.messages)


async def test_a_message_of_the_run_may_have_the_id_of_a_row_elsewhere(
    make_builder: MakeBuilder,
) -> None:
    """A row of another conversation isn't among those that weren't read."""
    builder = make_builder(settings=Settings(memory=MemorySettings(limit=None, max_rows=20)))
    run = run_rows(100)
    await builder.history.append("o", history(100), conversation_id="here")
    await builder.history.append("o", run, conversation_id="there")
    content = {"history": run, "metadata": {"context": {"explain": True}}}
    request = {"owner_key": "o", "conversation_id": "here", "content": content}
    found = await builder.build_or_raise(BuildRequest.model_validate(request))

    assert [each.count for each in unread(found)] == [80]


@pytest.mark.parametrize(
    ("past", "stored", "run", "read"),
    [
        (100, 0, 1, []),  # the first request of a run
        (100, 9, 9, []),  # all of the run was read
        (5, 0, 9, []),  # all of the history was read
        (100, 1, 3, ["call0", "result0"]),
    ],
)
async def test_the_store_is_asked_for_the_run_only_where_it_matters(
    make_builder: MakeBuilder,
    builder: ContextBuilder,
    past: int,
    stored: int,
    run: int,
    read: list[str],
) -> None:
    """Most builds know how many rows they didn't read."""
    store = Watched(lambda: builder.tokenizers.counter("o200k_base"), builder.clock)
    watching = make_builder(
        settings=Settings(memory=MemorySettings(limit=None, max_rows=20)),
        sources={"history": store},
    )
    rows = run_rows(100)
    await store.append("o", [*history(past), *rows[:stored]])
    request = {"owner_key": "o", "content": {"history": rows[:run]}}
    await watching.build_or_raise(BuildRequest.model_validate(request))

    assert [*store.by_ids] == read


async def test_rows_of_a_named_day_are_found(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Also if the question has no word of theirs."""
    rows = history()
    rows[30] = {**rows[30], "timestamp": "2025-10-25T09:00:00Z"}
    rows[31] = {**rows[31], "timestamp": "2025-10-25T09:01:00Z"}
    found = await built(builder, make_request, "What did I say on 25 October 2025?", rows)

    assert {"m30", "m31"} <= {message.id for message in found.gathered.history.messages}
    assert any(KEY in str(message["content"]) for message in found.content.messages)
