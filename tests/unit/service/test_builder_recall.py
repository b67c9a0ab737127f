"""What a build recalls, from the request to the answer."""

import json
from typing import Any

import pytest

from bench.recounts import cost, parts_of
from formatters.model import Row
from service.build.account import context_sizes
from service.config.settings import MemorySettings, Settings
from service.wire.response import BuildSuccess
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
    """Return a function that asks after some history, by default where the key is."""
    key = "Where is the spare key of the cabin?"

    async def asked(rows: list[Row], question: str = key, **context: Any) -> BuildSuccess:
        options = {"strategy": "relevance", "explain": True, "memory_tokens": 400, **context}
        request = make_request(question, past=rows, **options)
        content = (await make_builder().build(request)).content
        assert content.status == "success", content
        return content

    return asked


def recalled(content: BuildSuccess) -> list[str]:
    """Return the lines of the recalled block."""
    (text,) = [m["content"] for m in content.messages if m["content"].startswith("[RECALLED")]
    return str(text).split("\n")


async def test_every_candidate_has_its_tokens(ask: Any) -> None:
    """Rows that are far too long for what is left are counted for the decisions, too."""
    content = await ask(history(m6=KEY, m9="Unrelated. " * 2_000), memory_tokens=80)

    dropped = [each for each in content.decisions if each.decision == "dropped"]
    assert len(dropped) > 50
    assert all(each.tokens for each in dropped)


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_the_passage_that_answers_is_recalled(ask: Any, layout: str) -> None:
    """Of a long message, with what is left out marked and a decision of its own."""
    content = await ask(
        history(m6=f"{'Unrelated. ' * 90}\n\n{KEY}.\n\n{'Other. ' * 90}"), layout=layout
    )
    (decision,) = [each for each in content.decisions if "m6" in each.message_ids]

    assert f"{KEY}." in recalled(content)
    assert " Human: ..." in recalled(content)
    assert (decision.decision, decision.reason) == ("truncated", "passages")


async def test_a_cut_row_of_the_newest_turn_has_no_second_decision(ask: Any) -> None:
    """Its passages are candidates for a recall, and the newest turn shows the row."""
    rows = history(2, m0=f"The cabin has a key. {'Unrelated. ' * 200}")
    content = await ask(rows, memory_tokens=300)

    assert [each.message_ids for each in content.decisions] == [["m0"], ["m1"]]
    assert content.decisions[0].reason == "passages"


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_an_old_row_is_recalled(ask: Any, layout: str) -> None:
    """It is under its day before the current input, and its decision has its score."""
    content = await ask(history(m6=KEY), layout=layout)
    lines = recalled(content)
    place = lines.index(f" Human: {KEY}")
    decision = next(each for each in content.decisions if "m6" in each.message_ids)

    assert lines[:3] == [
        f"[RECALLED count={sum(line.startswith((' Human:', ' Nexus:')) for line in lines)}]",
        "Earlier messages that may matter now, by day:",
        "",
    ]
    assert "[4 January 2025]" in lines[:place]
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


async def test_a_row_that_is_passed_over_is_too_long(ask: Any) -> None:
    """Its reason says so instead of naming scores, and it has the tokens that were counted."""
    long = "Where is the spare key of the cabin? " * 12
    content = await ask(history(m6=KEY, m8=long, m9="Spare key of the cabin: where?"))
    assert {each.decision for each in content.decisions if "m8" in each.message_ids} == {"kept"}
    content = await ask(
        history(m6=KEY, m8=long, m9="Spare key of the cabin: where?"), memory_tokens=170
    )
    decision = next(each for each in content.decisions if "m8" in each.message_ids)
    kept = next(each for each in content.decisions if "m6" in each.message_ids)

    assert (kept.decision, decision.decision, decision.reason) == ("kept", "dropped", "no_room")
    assert (decision.score or 0) > (kept.score or 0)
    assert (decision.tokens or 0) > 60


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

    assert f" Human: {KEY}" in recalled(content)
    assert {id_ for each in content.decisions for id_ in each.message_ids} == {
        str(each["id"]) for each in rows
    }


async def test_a_history_beyond_what_is_read_is_reported(
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
    built = await make_builder().build_or_raise(request)

    assert "RECALLED" in built.content.usage.blocks
    assert built.fitted.history
    assert not built.fitted.history.fit.wanted_summary


async def test_a_limit_of_none_shows_no_turn_in_its_place(ask: Any) -> None:
    """With no rows in `[SHARED_MEMORY]` rows are recalled all the same."""
    content = await ask(history(m6=KEY), memory_limit=0)

    assert parts_of(content).texts["SHARED_MEMORY"].startswith("[SHARED_MEMORY count=0]")
    assert f" Human: {KEY}" in recalled(content)


async def test_a_call_is_recalled_with_its_result(ask: Any) -> None:
    """The annotation replaces the call, and the result is a row below it."""
    rows = history()
    call = {"id": "c1", "name": "search", "arguments": {"query": "cabin key"}}
    rows[7] = {**rows[7], "content": "", "metadata": {"tool_calls": [call]}}
    result = {**rows[7], "id": "t7", "role": "TOOL", "content": "found"}
    rows.insert(8, {**result, "metadata": {"tool_call_id": "c1"}})
    rows.insert(9, {**rows[8], "id": "a7", "role": "AI", "content": KEY, "metadata": {}})
    content = await ask(rows)
    decisions = {id_: each for each in content.decisions for id_ in each.message_ids}
    parts = [decisions[id_] for id_ in (rows[7]["id"], "t7", "a7")]

    assert [each.decision for each in parts] == ["annotated", "kept", "kept"]
    assert {each.block for each in parts} == {"RECALLED"}
    lines = recalled(content)
    at = lines.index("[tool_use:search, query:cabin key]")
    assert lines[at + 1] == " Tool search: found"


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_a_result_is_recalled_whose_call_is_shown(
    make_builder: MakeBuilder, make_request: MakeRequest, layout: str
) -> None:
    """Also where all of history fits; each message has one decision, and the counts agree."""
    call = {"id": "c1", "name": "search", "arguments": {"query": "cabin"}}
    run = {"run_id": "r1"}
    rows = [
        row(1, "HUMAN", "Look for it", **run),
        row(2, "AI", "", **run, metadata={"tool_calls": [call]}),
        row(3, "TOOL", KEY, **run, metadata={"tool_call_id": "c1"}),
        row(4, "AI", "I found something.", **run),
    ]
    request = make_request(
        "Where is the spare key?", past=rows, strategy="relevance", layout=layout, explain=True
    )
    content: Any = (await make_builder().build(request)).content
    decided = [(id_, each.decision) for each in content.decisions for id_ in each.message_ids]
    text = json.dumps(content.messages)

    assert sorted(decided)[2] == ("m3", "kept")
    assert len(decided) == len({id_ for id_, _ in decided}) == 4
    assert (content.kept, content.annotated) == ((3, 1) if layout == "tagged" else (4, 0))
    assert text.count(KEY) == 1

    settings = Settings(memory=MemorySettings(tool_results="annotated"))
    content = (await make_builder(settings=settings).build(request)).content
    assert json.dumps(content.messages).count(KEY) == (layout == "chat")


async def test_a_part_is_recalled_that_the_newest_turns_do_not_show(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Of a message that is cut, and of a call whose annotation leaves arguments out."""
    call = {"id": "c1", "name": "note", "arguments": {"path": "a.md", "text": KEY}}
    said = f"{'Unrelated. ' * 90}\n\nThe oars of the boat are in the shed."
    rows = [
        row(1, "HUMAN", said, run_id="r1"),
        row(2, "AI", "I noted it.", run_id="r1", metadata={"tool_calls": [call]}),
    ]
    request = make_request(
        "Where are the oars and the spare key?", past=rows, strategy="relevance", explain=True
    )
    content: Any = (await make_builder().build(request)).content
    text = "\n".join(recalled(content))
    decided = {id_: d for d in content.decisions for id_ in d.message_ids}
    sizes = content.usage.blocks

    assert "The oars of the boat are in the shed." in text
    assert KEY in text
    assert "I noted it." in text
    assert (decided["m1"].decision, decided["m1"].reason) == ("truncated", "passages")
    assert (decided["m2"].decision, decided["m2"].reason) == ("kept", "fits")
    # the first message of the turn has the tokens of the turn, besides those of its recalled part
    assert decided["m2"].tokens is None
    assert (
        sizes["SHARED_MEMORY"] < decided["m1"].tokens < sizes["SHARED_MEMORY"] + sizes["RECALLED"]
    )
    assert (content.kept, content.truncated) == (1, 1)


@pytest.mark.parametrize(("tokens", "turns"), [(1_500, 1), (2_000, 5)])
async def test_parts_of_cut_rows_have_a_quarter_of_the_tokens(
    ask: Any, tokens: int, turns: int
) -> None:
    """With less room for them, only the newest turn is shown, and the rest may be recalled."""
    long = "Unrelated. " * 100
    rows = history(
        10, **{f"m{place}": f"{long}{place}" for place in range(10)} | {"m2": long + KEY}
    )
    content = await ask(rows, memory_tokens=tokens)
    memory = next(m["content"] for m in content.messages if m["content"].startswith("[SHARED"))

    assert KEY in "\n".join(recalled(content))
    assert memory.count("Human: ") == turns


@pytest.mark.parametrize("tokens", range(250, 650, 50))
@pytest.mark.parametrize("later", [0, 2])
async def test_a_line_of_a_pasted_text_is_found_whatever_the_tokens(
    ask: Any, tokens: int, later: int
) -> None:
    """Also where the whole history fits as its long messages are cut."""
    parts = {f"part {number}": f"{100 + number * 7}.50" for number in range(60)}
    pasted = "Our prices:\n" + "\n".join(f"- {part}: {price} EUR" for part, price in parts.items())
    rows = history(2 + 2 * later, m0=pasted)
    content = await ask(rows, question="What does part 47 cost?", memory_tokens=tokens)

    assert f"part 47: {parts['part 47']}" in "\n".join(m["content"] for m in content.messages)


@pytest.mark.parametrize("asked", ["How much is bolt-M47?", "What's the price of bolt-M47?"])
async def test_a_code_counts_more_than_the_words_of_a_heading(ask: Any, asked: str) -> None:
    """The row of a table is found by the only word that others don't have."""
    table = "| part | price |\n" + "\n".join(f"| bolt-M{n} | {n}.70 EUR |" for n in range(60))
    content = await ask(history(8, m0=table), question=asked, memory_tokens=250)

    assert "bolt-M47 | 47.70" in "\n".join(recalled(content))


async def test_short_arguments_leave_a_history_that_fits_in_its_place(ask: Any) -> None:
    """They need no quarter of the tokens."""
    call = {"id": "c1", "name": "look", "arguments": {"where": "lake", "for": "boat"}}
    calling = row(7, "AI", "", run_id="r3", metadata={"tool_calls": [call]})
    rows = [*history(7), {**calling, "timestamp": "2025-01-04T12:01:00Z"}]
    content = await ask(rows, memory_tokens=300)
    (memory,) = [m["content"] for m in content.messages if m["content"].startswith("[SHARED")]

    assert memory.count("Human: ") == 4
    assert recalled(content)[-1] == ' Nexus: [tool_use:look {"where": "lake", "for": "boat"}]'


async def test_a_beginning_that_is_shown_is_not_recalled_from_elsewhere(ask: Any) -> None:
    """The newest turn shows it of another message that says the same."""
    log = " ".join(f"{'Key' if number < 9 else 'Oar'} {number} is here." for number in range(90))
    content = await ask(history(8, m2=log, m6=log), memory_tokens=700)
    shown = "\n".join(str(message["content"]) for message in content.messages)

    assert shown.count("Key 3 is here.") == 1


async def test_a_newest_turn_that_is_too_large_is_shortened(ask: Any) -> None:
    """What is protected is cut before it exceeds the tokens, and rows of others make way."""
    long = "".join(f"Word {number}. " for number in range(60))
    content = await ask(history(m58=long, m59=f"No. {long}"), memory_tokens=120)
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
    """In the chat layout the prefix ends with the message of the blocks."""
    content = await ask(history(m6=KEY), layout="chat")

    assert content.usage.cacheable_prefix == sum(map(cost, content.messages[:2]))


async def test_a_list_ranks_turns_in_their_places(ask: Any) -> None:
    """In a list it chooses turns by the newest message of the history."""
    rows = history(m6=KEY, m58="Where was the spare key of the cabin?")
    several = ["tool_result_clearing", "relevance"]
    content = await ask(rows, strategy=several, memory_limit=None)

    assert "RECALLED" not in content.usage.blocks
    assert KEY in json.dumps(content.messages)


async def test_answers_of_a_run_that_is_shown_in_part_are_older(ask: Any) -> None:
    """In chat, what a run said before its newest answers is recalled or dropped."""
    day = "2025-03-01T12:{:02}:00Z"
    run = [
        {**row(100 + place, "AI", f"{FILLING} {place}", run_id="last"), "timestamp": day.format(1)}
        for place in range(40)
    ]
    asked = {**row(99, "HUMAN", "Tell me all", run_id="last"), "timestamp": day.format(0)}
    content = await ask([*history(m6=KEY), asked, *run], layout="chat")
    fates = {id_: each for each in content.decisions for id_ in each.message_ids}

    assert fates["m139"].decision == "kept"
    assert (fates["m100"].decision, fates["m100"].reason) == ("dropped", "no_room")
    assert content.kept + content.dropped == len(fates) == 101


async def test_a_long_newest_turn_leaves_room_for_rows(ask: Any) -> None:
    """If it takes more than half, its messages are cut, and compete with others; alone it stays."""
    said = "We talked about the weather of the day, and about the wind. " * 7
    turn = [row(98, "HUMAN", said, run_id="last"), row(99, "AI", f"{said} So.", run_id="last")]
    content = await ask([*history(m6=KEY), *turn], memory_tokens=280)
    fates = {id_: each for each in content.decisions for id_ in each.message_ids}
    sizes = content.usage.blocks

    assert (fates["m6"].block, fates["m6"].decision) == ("RECALLED", "kept")
    assert (fates["m98"].block, fates["m98"].decision) == ("RECALLED", "kept")
    assert (fates["m99"].decision, fates["m99"].reason) == ("truncated", "shortened")
    assert sizes["SHARED_MEMORY"] < 280 / 2
    assert sizes["SHARED_MEMORY"] + sizes["RECALLED"] <= 280
    alone = await ask(turn, memory_tokens=280)
    assert [each.decision for each in alone.decisions] == ["kept"]


@pytest.mark.parametrize("layout", ["tagged", "chat"])
async def test_of_the_best_row_a_part_is_shown_if_it_does_not_fit(ask: Any, layout: str) -> None:
    """Of a result, too; with more tokens, it is the usual part."""
    status = "temperature {} status ok"
    lines = [f"2026-11-05 03:{n:02} deck {n % 4} {status.format(200 + n)}" for n in range(60)]
    lines[33] = "2026-11-05 03:33 deck 1: spare key of the cabin lost"
    call = {"tool_calls": [{"id": "c", "name": "read_log", "arguments": {"path": "log"}}]}
    rows = [
        row(0, "HUMAN", "Read the log", run_id="a"),
        row(1, "AI", "", run_id="a", metadata=call),
        row(2, "TOOL", "\n".join(lines), run_id="a", metadata={"tool_call_id": "c"}),
        row(3, "HUMAN", "Thanks", run_id="b"),
        row(4, "AI", "You're welcome", run_id="b"),
    ]
    found = []
    for tokens in (90, 170, 600):
        content = await ask(rows, layout=layout, memory_tokens=tokens)
        fates = {id_: each for each in content.decisions for id_ in each.message_ids}
        shown = [line for m in content.messages for line in str(m["content"]).split("\n")]
        logged = sum(line.startswith("| 2026") for line in shown)
        found.append((fates["m2"].reason, f"| {lines[33]}" in shown, logged))
    assert found[:2] == [("call_only", False, 0), ("passages", True, 3)]
    assert found[2][:2] == ("passages", True)
    assert found[2][2] > 9


async def test_a_long_newest_turn_is_cut_only_for_rows_that_fit(ask: Any) -> None:
    """If the only other row is too long for what it leaves, the turn is whole."""
    dense = "\U0001f511 " * 90
    said = "The wind is strong today, so we stay in the harbour and cook soup. " * 6
    turn = [row(98, "HUMAN", "And?", run_id="last"), row(99, "AI", said, run_id="last")]
    content = await ask([row(1, "HUMAN", f"The key {dense}"), *turn], memory_tokens=150)
    fates = {id_: each.decision for each in content.decisions for id_ in each.message_ids}

    assert fates == {"m1": "dropped", "m98": "kept", "m99": "kept"}


async def test_of_a_long_newest_turn_the_end_is_shown(ask: Any) -> None:
    """Its last answers with their results take half; what matters of the rest is recalled."""
    day = "2025-03-01T12:00:{:02}Z"
    asked = {**row(99, "HUMAN", "Tell me all", run_id="last"), "timestamp": day.format(0)}
    run = [asked]
    for place in range(1, 40):
        text = KEY if place == 2 else f"{FILLING} {place}"
        call = {"id": f"c{place}", "name": "look", "arguments": {"at": place}}
        found = {"tool_call_id": call["id"]}
        more = {"run_id": "last", "timestamp": day.format(place)}
        run += [
            {**row(100 + place, "AI", text, metadata={"tool_calls": [call]}), **more},
            {**row(200 + place, "TOOL", f"sea {place}", metadata=found), **more},
        ]
    content = await ask([*history(), *run])
    fates = {id_: each for each in content.decisions for id_ in each.message_ids}
    sizes = content.usage.blocks

    assert (fates["m139"].block, fates["m139"].decision) == ("SHARED_MEMORY", "kept")
    assert (fates["m102"].block, fates["m102"].decision) == ("RECALLED", "kept")
    assert sizes["SHARED_MEMORY"] < 220  # with its header
    assert sizes["SHARED_MEMORY"] + sizes["RECALLED"] <= 400
    assert len(fates) == 60 + len(run)
    # with nothing but one long answer, that is shown in part
    content = await ask([asked, row(140, "AI", "word " * 900, run_id="last")])
    reasons = {id_: each.reason for each in content.decisions for id_ in each.message_ids}
    assert reasons["m140"] == "passages"


async def test_tokens_of_rows_that_are_not_recalled_are_not_counted(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The reported savings are of the newest turns, which stay as they are."""
    options = {"strategy": "relevance", "memory_tokens": 400}
    built = await make_builder().build_or_raise(make_request("Where?", past=history(), **options))

    assert built.content.dropped
    assert context_sizes(built).saved == 0


async def test_tool_results_use_what_is_left(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """With the preset `recall` they are printed and recalled like any row, until little is left."""
    rows: list[Row] = []
    for number in range(40):
        run, arguments = {"run_id": f"r{number}"}, {"query": f"flight {number}"}
        call = {"id": f"c{number}", "name": "find_flight", "arguments": arguments}
        found = " ".join(
            f"{name} {number * 37 + place}" for place, name in enumerate("abcdefgh" * 4)
        )
        rows += [
            row(4 * number, "HUMAN", f"Is there a flight {number}?", **run),
            row(4 * number + 1, "AI", "", **run, metadata={"tool_calls": [call]}),
            row(4 * number + 2, "TOOL", found, **run, metadata={"tool_call_id": call["id"]}),
            row(4 * number + 3, "AI", f"Yes, flight {number} goes.", **run),
        ]
    builder = make_builder(settings=Settings(preset="recall"))
    await builder.history.append("o", rows)
    request = make_request("What is a 740 of flight 20?", memory_tokens=2_000, explain=True)
    content = (await builder.build(request)).content
    assert content.status == "success"
    decided = {id_: each.decision for each in content.decisions for id_ in each.message_ids}
    results = {str(each["id"]): each["content"] for each in rows if each["role"] == "TOOL"}
    text = "\n".join(str(message["content"]) for message in content.messages)

    assert content.dropped
    assert parts_of(content).remembered >= 0.9 * 2_000
    assert {decided[id_] for id_ in results} == {"kept", "annotated", "dropped"}
    assert all((f": {found}" in text) == (decided[id_] == "kept") for id_, found in results.items())


@pytest.mark.parametrize("memory_tokens", [None, 400])
async def test_the_assistant_is_called_as_the_settings_say(
    make_builder: MakeBuilder, make_request: MakeRequest, memory_tokens: int | None
) -> None:
    """In both blocks of history."""
    options = {"strategy": "relevance", "memory_tokens": memory_tokens}
    request = make_request("Where is the key of the cabin?", past=history(m7=KEY), **options)
    settings = Settings(memory=MemorySettings(assistant_name="Ada"))
    content = (await make_builder(settings=settings).build(request)).content
    assert content.status == "success"
    texts = [str(message["content"]) for message in content.messages[1:]]

    assert f"\n Ada: {KEY}" in "\n".join(texts)
    assert not any("Nexus:" in text for text in texts)
