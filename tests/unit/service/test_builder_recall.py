"""What a build recalls, from the request to the answer."""

import json
from typing import Any

import pytest

from bench.recounts import cost, parts_of
from formatters.model import Row
from service.config.settings import MemorySettings, Settings
from service.wire.response import BuildSuccess
from service.worker.telemetry import context_sizes
from tests.support import MakeBuilder, MakeRequest, row

FILLING = "We talked about the weather, and about soup, and about nothing much at all"


def history(length: int = 60, **placed: str) -> list[Row]:
    """Return rows of alternate speakers, a turn a day, with some contents replaced by place."""
    texts = {int(name[1:]): text for name, text in placed.items()}
    return [
        {
            **row(
                place,
                "AI" if place % 2 else "HUMAN",
                texts.get(place, f"{FILLING} {place}"),
                run_id=f"r{place // 2}",
            ),
            "timestamp": f"2025-{1 + place // 56:02}-{1 + place // 2 % 28:02}T12:0{place % 2}:00Z",
        }
        for place in range(length)
    ]


KEY = "The spare key of the cabin lies under the blue flowerpot"


@pytest.fixture
def ask(make_builder: MakeBuilder, make_request: MakeRequest) -> Any:
    """Return a function that asks where the key is, after some history."""

    async def asked(rows: list[Row], **context: Any) -> BuildSuccess:
        options = {"strategy": "relevance", "explain": True, "memory_tokens": 400, **context}
        request = make_request("Where is the spare key of the cabin?", past=rows, **options)
        content = (await make_builder().build(request)).content
        assert content.status == "success", content
        return content

    return asked


def recalled(content: BuildSuccess) -> list[str]:
    """Return the lines of the recalled block."""
    (text,) = [m["content"] for m in content.messages if m["content"].startswith("[RECALLED")]
    return str(text).split("\n")


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_an_old_row_is_recalled(ask: Any, layout: str) -> None:
    """It stands under its day before the current input, and its decision has its score."""
    content = await ask(history(m6=KEY), layout=layout)
    lines = recalled(content)
    place = lines.index(f"  Human: {KEY}")
    decision = next(each for each in content.decisions if "m6" in each.message_ids)

    assert lines[:3] == [
        f"[RECALLED count={sum(line.startswith('  ') for line in lines)}]",
        "Earlier messages that may matter now, by day:",
        "",
    ]
    assert "[2025-01-04]" in lines[:place]
    assert content.messages[-2]["content"].startswith("[RECALLED")
    assert content.messages[-2]["role"] == "user"
    assert (decision.block, decision.decision, decision.reason) == ("RECALLED", "kept", "recalled")
    assert decision.score is not None
    assert decision.score > max(
        each.score for each in content.decisions if each.score is not None and each is not decision
    )
    assert content.usage.blocks["RECALLED"] == cost(content.messages[-2])
    assert parts_of(content).remembered <= 400
    assert content.kept + content.dropped == 60


async def test_the_newest_turn_stays_in_its_place(ask: Any) -> None:
    """The newest turn is in `[SHARED_MEMORY]`; what isn't recalled is dropped for its score."""
    content = await ask(history(m6=KEY))
    shared = parts_of(content).texts["SHARED_MEMORY"]
    dropped = [each for each in content.decisions if each.decision == "dropped"]

    assert shared.startswith("[SHARED_MEMORY count=2]")
    assert shared.endswith("59")
    assert {(each.block, each.reason) for each in dropped} == {("SHARED_MEMORY", "score")}
    assert all(each.score is not None for each in dropped)


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_what_fits_is_shown_as_ever(ask: Any, layout: str) -> None:
    """Where all of history fits there is no recalled block."""
    limits = {"layout": layout, "memory_tokens": None, "max_tokens": 20_000, "memory_limit": None}
    content = await ask(history(m6=KEY), **limits)
    other = await ask(history(m6=KEY), **limits, strategy="oldest_first")

    assert "RECALLED" not in content.usage.blocks
    assert content.messages == other.messages
    assert content.decisions == other.decisions


async def test_rows_beyond_the_limit_of_rows_are_recalled(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The limit bounds `[SHARED_MEMORY]` alone: the store is read as far as it may be."""
    builder = make_builder()
    rows = history(200, m6=KEY)
    await builder.history.append("o", rows)
    options = {"strategy": "relevance", "memory_tokens": 400, "memory_limit": 4, "explain": True}
    request = make_request("Where is the spare key?", **options)
    content = (await builder.build(request)).content
    assert content.status == "success"

    assert f"  Human: {KEY}" in recalled(content)
    assert {id_ for each in content.decisions for id_ in each.message_ids} == {
        str(each["id"]) for each in rows
    }


async def test_a_history_beyond_what_is_read_is_told(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Rows that are not read can't be recalled, which a warning says whatever the limit of rows."""
    builder = make_builder(settings=Settings(memory=MemorySettings(max_rows=50)))
    await builder.history.append("o", history(60))
    content = (await builder.build(make_request(strategy="relevance"))).content
    assert content.status == "success"

    assert [warning.code for warning in content.warnings] == ["history_capped"]


async def test_no_summary_is_wanted(make_builder: MakeBuilder, make_request: MakeRequest) -> None:
    """What is recalled needs no summary in its place."""
    past = history(m6=KEY)
    request = make_request(KEY, past=past, strategy="relevance", memory_tokens=200)
    built = await make_builder().built(request)

    assert "RECALLED" in built.content.usage.blocks
    assert built.fitted.history
    assert not built.fitted.history.outcome.fit.wanted_summary


async def test_a_limit_of_none_shows_no_turn_in_its_place(ask: Any) -> None:
    """With no rows in `[SHARED_MEMORY]` rows are recalled all the same."""
    content = await ask(history(m6=KEY), memory_limit=0)

    assert parts_of(content).texts["SHARED_MEMORY"].startswith("[SHARED_MEMORY count=0]")
    assert f"  Human: {KEY}" in recalled(content)


async def test_a_call_is_recalled_with_its_result(ask: Any) -> None:
    """Annotation, answer and tool result have one decision."""
    rows = history()
    call = {"id": "c1", "name": "search", "arguments": {"query": "cabin key"}}
    rows[7] = {**rows[7], "content": "", "metadata": {"tool_calls": [call]}}
    result = {**rows[7], "id": "t7", "role": "TOOL", "content": "found"}
    rows.insert(8, {**result, "metadata": {"tool_call_id": "c1"}})
    rows.insert(9, {**rows[8], "id": "a7", "role": "AI", "content": KEY, "metadata": {}})
    content = await ask(rows)
    decision = next(each for each in content.decisions if "a7" in each.message_ids)

    assert decision.message_ids == [rows[7]["id"], "t7", "a7"]
    assert decision.block == "RECALLED"
    assert "  Nexus: [tool_use:search, query:cabin key]" in recalled(content)


async def test_a_newest_turn_that_is_too_large_is_shortened(ask: Any) -> None:
    """What is protected is cut before it exceeds the tokens, and rows of others make way."""
    content = await ask(history(m58="word " * 90, m59="word " * 90), memory_tokens=120)
    reasons = {id_: each.reason for each in content.decisions for id_ in each.message_ids}

    assert reasons["m59"] == "shortened"
    assert parts_of(content).remembered <= 120


async def test_a_share_of_all_shows_the_newest_alone(ask: Any) -> None:
    """With a share of 1 it is `oldest_first`, but for what still finds room."""
    content = await ask(history(), strategy={"name": "relevance", "recent_share": 1.0})
    other = await ask(history(), strategy="oldest_first")

    assert parts_of(content).texts["SHARED_MEMORY"] == parts_of(other).texts["SHARED_MEMORY"]


@pytest.mark.parametrize("cap", [90, 150, 400])
async def test_estimates_keep_to_the_tokens(ask: Any, cap: int) -> None:
    """Where counts are raised and rounded, what holds history still has no more than it may."""
    content = await ask(history(m6=KEY), model="claude-sonnet-4-5", memory_tokens=cap)
    blocks = content.usage.blocks

    assert not content.usage.exact
    assert blocks["SHARED_MEMORY"] + blocks.get("RECALLED", 0) <= cap
    assert "RECALLED" in blocks or cap < 150


async def test_recalled_rows_are_no_part_of_the_cached_prefix(ask: Any) -> None:
    """In the chat layout the prefix ends with the system message."""
    content = await ask(history(m6=KEY), layout="chat")

    assert content.usage.cacheable_prefix == cost(content.messages[0])


async def test_a_list_ranks_turns_in_their_places(ask: Any) -> None:
    """In a list it chooses turns by the newest message of the history."""
    rows = history(m6=KEY, m58="Where was the spare key of the cabin?")
    several = ["tool_result_clearing", "relevance"]
    content = await ask(rows, strategy=several, memory_limit=None)

    assert "RECALLED" not in content.usage.blocks
    assert KEY in json.dumps(content.messages)


async def test_answers_of_a_run_that_is_shown_in_part_are_older(ask: Any) -> None:
    """In chat, what a run said before its newest answers is dropped, and is no row to recall."""
    day = "2025-03-01T12:{:02}:00Z"
    run = [
        {**row(100 + place, "AI", f"{FILLING} {place}", run_id="last"), "timestamp": day.format(1)}
        for place in range(40)
    ]
    asked = {**row(99, "HUMAN", "Tell me all", run_id="last"), "timestamp": day.format(0)}
    content = await ask([*history(m6=KEY), asked, *run], layout="chat")
    fates = {id_: each for each in content.decisions for id_ in each.message_ids}

    assert fates["m139"].decision == "kept"
    assert (fates["m100"].decision, fates["m100"].reason) == ("dropped", "older")
    assert content.kept + content.dropped == len(fates) == 101


async def test_tokens_of_rows_that_are_not_recalled_are_not_counted(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """What is told as saved is of the newest turns, which stay as they are."""
    options = {"strategy": "relevance", "memory_tokens": 400}
    built = await make_builder().built(make_request("Where?", past=history(), **options))

    assert built.content.dropped
    assert context_sizes(built).saved == 0
