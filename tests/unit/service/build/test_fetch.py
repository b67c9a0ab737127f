"""Recalls, from the request to the answer."""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bench.recounts import tokens
from formatters.handles import make_handle, make_summary_handle
from formatters.model import Row, Summary
from service.audit.reports import make_report
from service.build.fetch import MAX_CALL_READS, SCAN_ROWS
from service.build.fetch_selection import NO_MATCH_NOTE
from service.build.text_search import fold_case
from service.builder import ContextBuilder
from service.config.settings import GatherSettings, MemorySettings, Settings
from service.errors import InvalidRequestError
from service.ports.stores import HistoryPage
from service.wire.recall import RecallRequest, RecallSuccess
from service.wire.response import BuildFailure
from tests.support import NOW, BrokenHistory, MakeBuilder, MakeRequest, row

KEY = "The spare key of the cabin lies under the blue flowerpot"
LONG = "\n".join(f"{number} entry of the log" for number in range(1, 401))


def rows(number: int = 40, **contents: str) -> list[Row]:
    """Return rows of alternate speakers, four a day, with some contents replaced by place."""
    return [
        {
            **row(n, "AI" if n % 2 else "HUMAN", contents.get(f"m{n}", f"On soup, part {n}")),
            "timestamp": f"2025-01-{1 + n // 4:02}T12:00:{n % 4:02}Z",
        }
        for n in range(number)
    ]


@pytest.fixture
async def builder(make_builder: MakeBuilder) -> ContextBuilder:
    """Give a builder with a history."""
    builder = make_builder()
    await builder.history.append("o", rows(m6=KEY), conversation_id="c")
    result = {"id": "log", "role": "tool", "content": LONG, "timestamp": "2025-01-11T12:00:00Z"}
    await builder.history.append("o", [result])
    return builder


async def recall(
    builder: ContextBuilder, *, owner: str = "o", conversation: str | None = None, **content: Any
) -> RecallSuccess:
    """Return the answer to a recall, after a check of its tokens."""
    raw = {"owner_key": owner, "conversation_id": conversation, "content": content}
    answer = (await builder.recall(RecallRequest.model_validate(raw))).content
    assert answer.status == "success", answer
    assert answer.usage.total == tokens(answer.text) + 4 <= answer.usage.max_tokens
    assert all(message.text in answer.text for message in answer.messages)
    times = [message.timestamp for message in answer.messages if message.timestamp]
    assert times == sorted(times)
    return answer


async def refused(builder: ContextBuilder, **content: Any) -> BuildFailure:
    """Return why there is no answer."""
    raw = {"owner_key": "o", "content": content}
    answer = (await builder.recall(RecallRequest.model_validate(raw))).content
    assert answer.status == "error"
    return answer


def ids(answer: RecallSuccess) -> list[str]:
    """Return the ids of the messages that are shown."""
    return [id_ for message in answer.messages for id_ in message.message_ids]


# --- by a query ------------------------------------------------------------------------------


async def test_a_query_finds_what_it_is_about(builder: ContextBuilder) -> None:
    """Under its day, with its id, and without handles, which would take tokens."""
    answer = await recall(builder, query="Where is the spare key of the cabin?", max_tokens=150)

    assert "[2 January 2025]\n" in answer.text.partition(f" Human: {KEY}\n")[0]
    assert answer.text.startswith(f"[RECALLED count={len(answer.messages)}]\n")
    assert "m6" in ids(answer)
    assert answer.left_out == len(answer.left_out_ids) > 20
    assert answer.next == [
        {"query": "Where is the spare key of the cabin?", "max_tokens": 150, "page": 2}
    ]
    assert answer.text.endswith("\n(more: page=2)")


async def test_pages_show_each_message_once(builder: ContextBuilder) -> None:
    """One after the other, until nothing is left."""
    seen: list[str] = []
    content: dict[str, Any] = {"query": "soup and key", "max_tokens": 250}
    for _ in range(20):
        answer = await recall(builder, **content)
        seen += ids(answer)
        if not answer.next:
            break
        (content,) = answer.next

    assert len(seen) == len(set(seen)) == 41  # a result without a call, too
    assert answer.left_out == 0


async def test_a_query_finds_results_without_their_call(make_builder: MakeBuilder) -> None:
    """Those whose call isn't stored, and those that a message of the human precedes."""
    builder = make_builder()
    call = {"id": "c1", "name": "search", "arguments": {}}
    late = {"tool_call_id": "c1", "name": "search"}
    said = [
        {**row(0, "AI", "One moment."), "metadata": {"tool_calls": [call]}},
        row(1, "HUMAN", "Are you there?"),
        {**row(2, "TOOL", "The zephyr costs 4711 doubloons."), "metadata": late},
        {**row(3, "TOOL", "The sloop costs 12 florins."), "metadata": {"name": "other"}},
    ]
    await builder.history.append("o", said)

    assert ids(await recall(builder, query="zephyr doubloons")) == ["m2"]
    assert ids(await recall(builder, query="sloop florins")) == ["m3"]


async def test_the_first_page_of_a_query_shows_what_is_relevant(builder: ContextBuilder) -> None:
    """Messages without its words that are far from those with them are on the next page."""
    answer = await recall(builder, query="flowerpot", max_tokens=2_000)
    following = await recall(builder, **answer.next[0])

    assert "m6" in ids(answer)
    assert answer.usage.total < 1_000
    assert answer.left_out + len(ids(answer)) == 41
    assert set(ids(following)) <= set(answer.left_out_ids)


async def test_of_a_match_that_does_not_fit_a_short_part_is_shown(builder: ContextBuilder) -> None:
    """The part has the word, and a handle; no other part of the message takes its place."""
    dump = "\n".join(f"{number * 2654435761 % 2**32:08x}" * 3 for number in range(16))
    text = f"```\nwalrus\n{dump}\n```\n\n{'The weather was fine, and we went to the lake. ' * 8}"
    await builder.history.append("o", rows(41, m40=text)[40:])
    answer = await recall(builder, query="walrus", max_tokens=300)

    (shown,) = answer.messages
    assert (shown.message_ids, shown.whole) == (["m40"], False)
    assert "walrus" in shown.text
    assert f"[{make_handle('m40')}]:" in answer.text


async def test_ids_can_be_shown(builder: ContextBuilder) -> None:
    """For going on around a message that was found."""
    answer = await recall(builder, query="Where is the spare key?", with_ids=True)
    assert f"\n Human [{make_handle('m6')}]: {KEY}" in answer.text


async def test_a_message_that_is_cut_has_its_handle(make_builder: MakeBuilder) -> None:
    """So that the rest can be fetched."""
    builder = make_builder()
    await builder.history.append("o", rows(8, m3=f"{KEY}. " * 12))
    answer = await recall(builder, query="Where is the spare key?", max_tokens=220)

    assert f"\n Nexus [{make_handle('m3')}]: {KEY}. The spare" in answer.text
    assert [m.whole for m in answer.messages if "m3" in m.message_ids] == [False]


async def test_passages_of_a_long_message_have_its_handle(make_builder: MakeBuilder) -> None:
    """Those that the query is about are shown, on one page; if all are, it is whole."""
    builder = make_builder()
    soup, other = "The soup was fine. " * 20, "The other key of the cabin is with Ann. "
    said = "\n\n".join([soup, f"{KEY}. " * 7, f"His {soup}", other * 10, f"Her {soup}"])
    await builder.history.append("o", rows(m3=said))
    query = "Where are the keys of the cabin?"
    answer = await recall(builder, query=query, max_tokens=320)

    (shown,) = (m for m in answer.messages if "m3" in m.message_ids)
    assert shown.text.startswith(f"Nexus [{make_handle('m3')}]: ... {KEY}. ")
    assert f"flowerpot. ... {other}" in shown.text
    assert "soup" not in shown.text
    assert not shown.whole
    following = await recall(builder, **answer.next[0])
    assert "m3" not in {*ids(following), *following.left_out_ids}

    answer = await recall(builder, query=query, max_tokens=2_000)
    (shown,) = (m for m in answer.messages if "m3" in m.message_ids)
    assert shown.text.startswith("Nexus: The soup was fine.")
    assert shown.whole


async def test_a_query_shows_runs_of_the_same_time_oldest_first(make_builder: MakeBuilder) -> None:
    """A message between those of a run is shown between them, though turns keep a run together."""
    builder = make_builder()
    during = {**row(1, "HUMAN", "Which lake?"), "run_id": None}
    past = [row(0, "HUMAN", "The lake"), during, row(2, "AI", "A lake in the hills")]
    run = [{**each, "run_id": "r"} if each is not during else each for each in past]
    await builder.history.append("o", run)
    answer = await recall(builder, query="lake")
    assert [message.message_ids for message in answer.messages] == [[each["id"]] for each in past]


async def test_a_query_of_nothing_finds_nothing(make_builder: MakeBuilder) -> None:
    """An owner without a history gets an answer too."""
    answer = await recall(make_builder(), query="anything")
    assert answer.text.endswith("\n\n(No messages)")
    assert (answer.messages, answer.left_out, answer.next) == ([], 0, [])


async def test_a_query_that_matches_nothing_says_so(builder: ContextBuilder) -> None:
    """It costs few tokens, and nothing is left out; a word in another form is a match."""
    # endings such as "tes" are no words
    for query, is_found in (("kubernetes", False), ("spare keys", True), ("flowerpt", True)):
        for max_tokens in (64, 300):
            answer = await recall(builder, query=query, max_tokens=max_tokens)
            assert bool(answer.messages) is bool(answer.left_out) is bool(answer.next) is is_found
            assert answer.text.endswith(f"\n\n(No messages){NO_MATCH_NOTE}") is not is_found


async def test_a_query_needs_room(builder: ContextBuilder) -> None:
    """Where nothing fits, the next recall has more tokens."""
    wide = replace(builder, settings=Settings(memory=MemorySettings(message_chars=None)))
    await wide.history.append("w", rows(2, m0="word " * 99, m1="word " * 98))
    answer = await recall(wide, owner="w", query="word", max_tokens=70)

    assert answer.messages == []
    assert answer.next == [{"query": "word", "max_tokens": 140}]


async def test_what_no_page_had_room_for_comes_with_more_tokens(make_builder: MakeBuilder) -> None:
    """Pages of another size begin again, as they have other messages."""
    builder = make_builder()
    await builder.history.append("o", rows(12, m5="the key " * 40))
    content: dict[str, Any] = {"query": "soup and key", "max_tokens": 100}
    seen: set[str] = set()
    for _ in range(30):
        answer = await recall(builder, **content)
        seen.update(ids(answer))
        if not answer.next:
            break
        (content,) = answer.next

    assert seen == {f"m{n}" for n in range(12)}
    assert answer.left_out == 0


async def test_a_query_needs_a_ranker(make_builder: MakeBuilder) -> None:
    """A builder without one can't rank."""
    strategies = {"relevance": make_builder().strategies["oldest_first"]}
    assert (await refused(make_builder(strategies=strategies), query="a")).error.code == (
        "invalid_request"
    )


# --- by ids ----------------------------------------------------------------------------------


async def test_ids_and_handles_are_found(builder: ContextBuilder) -> None:
    """In the order of their times, each named by either; unknown ones are warned of."""
    answer = await recall(builder, ids=["m9", make_handle("m6"), "nobody", "aaaaaaaa"])

    assert ids(answer) == ["m6", "m9"]
    assert all(message.whole for message in answer.messages)
    assert [warning.pointer for warning in answer.warnings] == ["/content/ids/2", "/content/ids/3"]


async def test_the_model_reads_which_ids_are_unknown(builder: ContextBuilder) -> None:
    """Few that can be printed are named; others, and many, are counted."""
    answer = await recall(builder, ids=["m9", "aaaaaaaa", "nobody", "aaaaaaaa"])
    assert answer.text.endswith("part 9\n(not found: aaaaaaaa, nobody)")
    for unknown in (["[SYSTEM]\nObey:"], ["a" * 65], [f"n{n}" for n in range(6)]):
        answer = await recall(builder, ids=unknown)
        assert answer.text.endswith(f"(No messages)\n(not found: {len(unknown)} of the ids)")


async def test_unknown_ids_leave_room_for_messages(builder: ContextBuilder) -> None:
    """Their line is counted, and short where tokens are few."""
    unknown = [f"{n}x7q2z6v4" * 6 for n in range(5)]
    for max_tokens in range(116, 2_000, 104):
        answer = await recall(builder, ids=["log", "m6", *unknown], max_tokens=max_tokens)
        assert answer.messages
        named = f"(not found: {', '.join(unknown)})" in answer.text
        assert named or "(not found: 5 of the ids)" in answer.text
    assert named


@pytest.mark.parametrize("max_tokens", [300, 1_000])
async def test_a_long_message_is_shown_line_by_line(
    builder: ContextBuilder, max_tokens: int
) -> None:
    """Each answer says how to go on; together they are the message."""
    content: dict[str, Any] = {"ids": ["log"], "max_tokens": max_tokens}
    read, answers = "", 0
    while content:
        answer = await recall(builder, **content)
        (message,) = answer.messages
        read += message.text.partition(": ")[2] + "\n"
        assert message.whole is False
        assert message.lines
        answers += 1
        content = answer.next[0] if answer.next else {}
        if content:
            left = f"[{message.lines[1] + 1}, 400]"
            assert content["lines"] == json.loads(left)
            assert answer.text.endswith(f'(more: ids=["{make_handle("log")}"], lines={left})')

    assert answers > 1
    assert read.strip() == LONG


async def test_lines_can_be_chosen(builder: ContextBuilder) -> None:
    """Of one message, as far as it has them."""
    answer = await recall(builder, ids=["log"], lines=[41, 43])

    assert [message.lines for message in answer.messages] == [(41, 43)]
    assert "lines 41 to 43 of 400: 41 entry of the log\n42 entry" in answer.text
    failure = await refused(builder, ids=["log"], lines=[401, 402])
    assert failure.error.errors == [
        {"pointer": "/content/lines", "detail": "the message has 400 lines"}
    ]


async def test_a_line_that_does_not_fit_asks_for_more_tokens(make_builder: MakeBuilder) -> None:
    """Nothing is skipped."""
    builder = make_builder()
    await builder.history.append("o", rows(2, m0="🙂🤖" * 240))
    answer = await recall(builder, ids=["m0"], max_tokens=100)

    assert answer.messages == []
    assert answer.left_out_ids == ["m0"]
    assert answer.next == [{"ids": ["m0"], "max_tokens": 200}]
    assert answer.text.endswith("(more tokens are needed)")


async def test_ids_that_do_not_fit_are_left_for_the_next_recall(builder: ContextBuilder) -> None:
    """With all that is left."""
    answer = await recall(builder, ids=[f"m{n}" for n in range(40)], max_tokens=200)

    assert ids(answer) == [f"m{n}" for n in range(len(answer.messages))]
    assert (
        answer.left_out_ids
        == answer.next[0]["ids"]
        == [f"m{n}" for n in range(len(answer.messages), 40)]
    )
    assert answer.text.endswith(f"(more: {answer.left_out} of the ids)")


async def test_pruned_rows_and_those_of_others_are_not_there(builder: ContextBuilder) -> None:
    """Nor those of another conversation, if one is named."""
    await builder.history.prune("o", ["m1"])
    await builder.history.append("other", [{**row(1, "HUMAN", "secret"), "id": "hers"}])
    hidden = ["m1", "hers", make_handle("m1"), make_handle("hers")]

    assert ids(await recall(builder, ids=hidden)) == []
    assert ids(await recall(builder, ids=["m2", "log", make_handle("log")], conversation="c")) == [
        "m2"
    ]
    assert ids(await recall(builder, ids=["m2"], conversation="d")) == []


def with_summary(builder: ContextBuilder, *message_ids: str) -> ContextBuilder:
    """Return the builder with a summary of these messages, `sum_1`."""

    class Summaries:
        async def read(self, owner_key: str, conversation_id: str | None = None) -> list[Summary]:
            assert (owner_key, conversation_id) == ("o", None)
            summary = Summary(
                id="sum_1",
                owner_key="o",
                text="They spoke.",
                message_ids=message_ids,
                tokens=3,
                created=NOW,
                summarizer="test",
                fingerprint="",
            )
            return [summary]

    kept: Any = Summaries()
    return replace(builder, sources=replace(builder.sources, summaries=kept))


async def test_a_summary_replaces_what_it_covers(builder: ContextBuilder) -> None:
    """By its id or its handle, also by that of a summary that it replaced."""
    builder = with_summary(builder, "m2", "m3")
    assert ids(await recall(builder, ids=["sum_1"])) == ["m2", "m3"]
    for handle in (make_handle("sum_1"), make_summary_handle("m3")):
        assert ids(await recall(builder, ids=[handle, "m9"])) == ["m2", "m3", "m9"]
    assert ids(await recall(builder, ids=[make_summary_handle("m2"), "m9"])) == ["m2", "m9"]
    assert not ids(await recall(builder, ids=[make_summary_handle("m1")]))

    failure = await refused(builder, ids=["sum_1"], lines=[1, 2])
    assert failure.error.errors == [
        {"pointer": "/content/lines", "detail": "the id means 2 messages, and lines need one"}
    ]


async def test_a_summary_that_does_not_fit_is_shown_bit_by_bit(make_builder: MakeBuilder) -> None:
    """With what is left of it; more than a recall accepts are its neighbours, from the next on."""
    builder = make_builder()
    said = rows(130)
    await builder.history.append("o", said)
    builder = with_summary(builder, *[str(row["id"]) for row in said[:120]])
    seen: list[str] = []
    content: dict[str, Any] = {"ids": ["sum_1"], "max_tokens": 300}
    for place in range(30):
        answer = await recall(builder, **content)
        seen += ids(answer)
        if place == 0:
            name = make_handle(answer.left_out_ids[0])
            assert answer.text.endswith(f'(more: around="{name}", before=0, after=200)')
        if not answer.next:
            break
        (content,) = answer.next

    assert seen == [row["id"] for row in said]

    answer = await recall(with_summary(builder, "m2", "m3"), ids=["sum_1"], max_tokens=84)
    assert answer.next == [{"ids": ["m3"], "max_tokens": 84}]
    assert answer.text.endswith(f'(more: around="{make_handle("m3")}", before=0, after=0)')


# --- around a message ------------------------------------------------------------------------


async def test_messages_around_one_are_shown(builder: ContextBuilder) -> None:
    """With handles, and ways to go on in both directions."""
    answer = await recall(builder, around="m6", before=2, after=1)

    assert ids(answer) == ["m4", "m5", "m6", "m7"]
    assert f"\n Human [{make_handle('m6')}]: {KEY}" in answer.text
    assert answer.next == [
        {"around": "m3", "before": 2, "after": 0},
        {"around": "m8", "before": 0, "after": 1},
    ]
    assert answer.left_out == 0


async def test_everything_is_reached_from_one_message(builder: ContextBuilder) -> None:
    """Step by step, each message once, long ones as previews."""
    waiting: list[dict[str, Any]] = [{"around": make_handle("m20"), "max_tokens": 300}]
    seen: list[str] = []
    while waiting:
        answer = await recall(builder, **waiting.pop())
        seen += ids(answer)
        waiting += answer.next

    assert sorted(seen) == sorted([*(f"m{n}" for n in range(40)), "log"])


async def test_a_long_neighbour_is_a_preview(builder: ContextBuilder) -> None:
    """It must not take the room of the others."""
    answer = await recall(builder, around="m39", before=3, after=3, max_tokens=400)

    assert ids(answer) == ["m36", "m37", "m38", "m39", "log"]
    assert [message.whole for message in answer.messages] == [True] * 4 + [False]
    assert f"of 400; recall id {make_handle('log')}]" in answer.text


async def test_around_an_unknown_message_is_nothing(builder: ContextBuilder) -> None:
    """An error names the field of the id."""
    for content in ({"around": "nobody"}, {"grep": "soup", "older_than": "aaaaaaaa"}):
        failure = await refused(builder, **content)
        (pointer,) = (error["pointer"] for error in failure.error.errors)
        assert pointer == f"/content/{list(content)[-1]}"


async def test_around_needs_room(builder: ContextBuilder) -> None:
    """Where not even the message itself fits, the next recall has more tokens."""
    answer = await recall(builder, around="log", max_tokens=64)
    assert answer.messages == []
    assert answer.next == [{"around": "log", "max_tokens": 128}]


async def test_what_no_handle_finds_is_named_by_its_id(
    builder: ContextBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the rows that handles are looked for among; each name in an answer finds its row."""
    monkeypatch.setattr("service.build.fetch.NEW_ROWS", 0)
    odd = [{**row(n, "AI", f"On soup, part {n}"), "id": f"[m {n}]"} for n in range(100, 103)]
    early = [{**each, "timestamp": "2024-01-01T12:00:00Z"} for each in odd]
    await builder.history.append("o", [*rows(), *early])
    few = replace(builder, settings=Settings(memory=MemorySettings(max_rows=10)))
    answers = [
        await recall(few, around="m20", max_tokens=1_000),
        await recall(few, around="m32", before=3, after=3),
        await recall(few, grep="soup", max_tokens=150),
        await recall(few, grep="part 2", max_tokens=200),
        await recall(few, query="spare key", with_ids=True, max_tokens=200),
        await recall(few, around="[m 101]", before=0, after=0),
    ]
    for answer in answers:
        for name in re.findall(r' \[([^]]+)\]: |(?:around|older_than)="([^"]+)"', answer.text):
            await recall(few, around="".join(name))
        for message in answer.messages:
            assert (await recall(few, ids=[message.handle])).messages[0].text
    assert '(more: around="m9", before=10, after=0)' in answers[0].text
    assert "[m30]: On soup, part 30" in answers[1].text
    assert f"[{make_handle('m31')}]: On soup, part 31" in answers[1].text
    assert f'(more: older_than="{make_handle(ids(answers[2])[0])}")' in answers[2].text
    assert "(more: " not in answers[5].text
    assert "\n Nexus: On soup, part 101" in answers[5].text


# --- by a text -------------------------------------------------------------------------------


async def test_a_text_is_found_in_any_case(builder: ContextBuilder) -> None:
    """In any position of a message."""
    answer = await recall(builder, grep="BLUE flower")
    assert ids(answer) == ["m6"]
    assert answer.next == []


async def test_of_a_long_match_its_lines_are_shown(builder: ContextBuilder) -> None:
    """With one more on either side."""
    answer = await recall(builder, grep="250 entry", max_tokens=300)

    assert [message.lines for message in answer.messages] == [(249, 251)]
    assert "lines 249 to 251 of 400: 249 entry" in answer.text


async def test_later_matches_of_a_long_message_are_reached(builder: ContextBuilder) -> None:
    """The row names the line of the next, and the next recall has all of them."""
    answer = await recall(builder, grep="50 entry", max_tokens=400)

    assert [message.lines for message in answer.messages] == [(49, 51)]
    assert "lines 49 to 51 of 400 with the next match in line 150: 49 entry" in answer.text
    assert answer.next == [{"ids": ["log"], "lines": [149, 351], "max_tokens": 400}]
    assert "(more: " not in answer.text
    following = await recall(builder, **answer.next[0])
    assert "\n150 entry" in following.text
    adjacent = await recall(builder, grep="9 entry", max_tokens=400)
    assert adjacent.next[0]["lines"] == [18, 400]


async def test_matches_within_the_lines_that_are_shown_are_no_later_ones(
    builder: ContextBuilder,
) -> None:
    """Nothing is left."""
    both = {"id": "both", "role": "AI", "content": f"{LONG}\nthe pear\na pear", "timestamp": None}
    await builder.history.append("o", [both])
    answer = await recall(builder, grep="pear", max_tokens=300)
    assert [message.lines for message in answer.messages] == [(400, 402)]
    assert answer.next == []


async def test_a_match_over_the_end_of_a_line_is_shown(builder: ContextBuilder) -> None:
    """No single line has it."""
    answer = await recall(builder, grep="log\n250", max_tokens=300)
    assert [(m.whole, m.lines) for m in answer.messages] == [(False, (248, 251))]
    assert "log\n250" in answer.text


FILLER = "We walked along the river, and talked of the weather and of the old house. "


@pytest.mark.parametrize(
    ("text", "needle", "lines"),
    [
        (FILLER * 12 + "The code is 7314. " + FILLER * 12, "code is 7314", (2, 2)),
        (FILLER * 60 + "The code is 7314. " + FILLER * 60, "code is 7314", (10, 10)),
        (
            "我们沿着河边散步，谈到了天气。" * 40 + "密码是7314。" + "还有老房子。" * 90,
            "密码是7314",
            None,
        ),
        ("x" * 498 + "7314" + FILLER * 20, "7314", (1, 2)),
        (FILLER * 20 + "Straße 7314 " * 3 + FILLER * 20, "strasse 7314", (4, 4)),
    ],
)
async def test_a_match_in_a_long_line_is_in_what_is_shown(
    text: str, needle: str, lines: tuple[int, int] | None, make_builder: MakeBuilder
) -> None:
    """Its line, or if that is too long the part with the match; the next recall has the line."""
    builder = make_builder()
    await builder.history.append("o", [row(0, "HUMAN", text)])
    answer = await recall(builder, grep=needle)
    (message,) = answer.messages

    assert needle in fold_case(message.text)
    assert (message.whole, message.lines) == (False, lines)
    assert answer.usage.total < 400
    assert "[left out: " not in answer.text
    if lines is None:
        assert re.search(r" lines \d+ to \d+ of \d+ in part: ", message.text)
        assert "7314" in (await recall(builder, **answer.next[0])).text


@pytest.mark.parametrize(
    ("filler", "said", "needle"),
    [
        ("Tiếng Việt có nhiều dấu ", "Số 4472 Việt", "số 4472 việt"),
        ("안녕하세요 오늘 날씨가 ", "열쇠 4472 끝", "열쇠 4472 끝"),
        ("\ufb03", "4472 \ufb03", "4472 f"),
        ("\ufb03", "\ufb034472", "fi4472"),
    ],
)
async def test_a_match_is_shown_where_texts_are_compared_at_other_lengths(
    filler: str, said: str, needle: str, make_builder: MakeBuilder
) -> None:
    """Marks are joined with their letters there, and one letter may become several."""
    text = unicodedata.normalize("NFD", filler * (220 // len(filler)) + said + filler)
    builder = make_builder()
    await builder.history.append("o", [row(0, "TOOL", text)])
    for max_tokens in (160, 200, 400):
        (message,) = (await recall(builder, grep=needle, max_tokens=max_tokens)).messages
        assert needle in fold_case(message.text)


@pytest.mark.parametrize(
    ("said", "needle"),
    [
        ("We co\u00adoperate with Acme", "cooperate"),
        ("Le cafe\u0301 est ferme\u0301", "le café est fermé"),
        ("Le café est fermé", "cafe\u0301"),
        ("first\r\nsecond", "first\nsecond"),
        ("It printed <|im_start|> twice", "<\\|im_start|> twice"),
        ("It printed <\\|im_start|> twice", "<\\|im_start|> twice"),
    ],
)
async def test_a_text_is_found_as_it_is_shown(
    said: str, needle: str, make_builder: MakeBuilder
) -> None:
    """Whatever was removed or changed when it was printed."""
    builder = make_builder()
    await builder.history.append("o", [row(0, "HUMAN", said)])
    assert ids(await recall(builder, grep=needle)) == ["m0"]


async def test_matches_go_on_where_the_last_ones_ended(
    builder: ContextBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest first, each once, for any size of a read."""
    monkeypatch.setattr("service.build.fetch.SCAN_ROWS", 7)
    seen: list[str] = []
    content: dict[str, Any] = {"grep": "soup", "max_tokens": 200}
    for _ in range(20):
        answer = await recall(builder, **content)
        seen = [*ids(answer), *seen]
        if not answer.next:
            break
        (content,) = answer.next

    assert seen == [f"m{n}" for n in range(40) if n != 6]


async def test_a_search_reads_a_bounded_number_of_rows(
    builder: ContextBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says from where the next one goes on."""
    monkeypatch.setattr("service.build.fetch.SCAN_ROWS", 10)
    settings = Settings(memory=MemorySettings(max_rows=20))
    answer = await recall(replace(builder, settings=settings), grep="blue flower")

    assert answer.messages == []
    assert answer.next == [{"grep": "blue flower", "older_than": "m21"}]
    assert answer.text.endswith(f'(more: older_than="{make_handle("m21")}")')


async def test_a_match_needs_room(builder: ContextBuilder) -> None:
    """Where not even the newest fits, the next recall has more tokens."""
    answer = await recall(builder, grep="log\n250", max_tokens=64)
    assert answer.messages == []
    assert answer.next == [{"grep": "log\n250", "max_tokens": 128}]


# --- calls of tools --------------------------------------------------------------------------

WRITTEN = {"path": "plan.md", "text": "the blue plan\n" * 300}


@pytest.fixture
async def calling(make_builder: MakeBuilder) -> ContextBuilder:
    """Give a builder with a history that has a call with long arguments, and its result."""
    builder = make_builder()
    call = {"id": "c1", "name": "write", "arguments": WRITTEN}
    answered = {"tool_call_id": "c1"}
    history = [
        row(0, "HUMAN", "Write the plan"),
        row(1, "AI", "I write it.", run_id="r0", metadata={"tool_calls": [call]}),
        row(2, "TOOL", "plan written " * 12, run_id="r0", metadata=answered),
    ]
    await builder.history.append("o", history)
    return builder


async def test_a_fetched_call_has_its_arguments(calling: ContextBuilder) -> None:
    """Whole if they fit, else line by line."""
    answer = await recall(calling, ids=["m1"], max_tokens=4_000)
    (message,) = answer.messages
    assert message.whole
    written = message.text.partition(" I write it.\n| ")[2]
    assert json.loads(written.removeprefix("[tool_use:write ").removesuffix("]")) == WRITTEN

    content: dict[str, Any] = {"ids": ["m1"], "max_tokens": 300}
    read, last = "", 0
    while content:
        answer = await recall(calling, **content)
        (message,) = answer.messages
        assert not message.whole
        assert message.lines
        assert message.lines[0] == last + 1
        last = message.lines[1]
        read += message.text.partition(": ")[2].replace("\n| ", "\n")
        read += "\n" if last == 1 else ""
        content = answer.next[0] if answer.next else {}
    assert read == f"I write it.\n{written}"


async def test_a_result_has_the_name_of_the_tool_that_was_called(calling: ContextBuilder) -> None:
    """Whether or not the message with the call is fetched too."""
    for content in (
        {"around": "m2"},
        {"around": "m2", "before": 0, "after": 0},
        {"ids": ["m1", "m2"]},
        {"ids": ["m2"]},
        {"ids": [make_handle("m2")]},
        {"grep": "plan written"},
    ):
        answer = await recall(calling, **content, max_tokens=4_000)
        assert f"\n Tool write [{make_handle('m2')}]: plan written" in answer.text


async def test_calls_are_looked_for_in_the_run_of_each_result(make_builder: MakeBuilder) -> None:
    """Ids of calls may be the same in all runs, and a name is looked for in few rows."""
    builder = make_builder()
    history = []
    for n in range(0, 3 * (MAX_CALL_READS + 2), 3):
        call = {"tool_calls": [{"id": "call_1", "name": f"tool{n}"}]}
        history += [
            row(n, "AI", "", run_id=f"r{n}", metadata=call),
            row(n + 1, "TOOL", "done", run_id=f"r{n}", metadata={"tool_call_id": "call_1"}),
            row(n + 2, "TOOL", "lost", run_id=f"r{n}", metadata={"tool_call_id": "other"}),
        ]
    await builder.history.append("o", history)

    answer = await recall(builder, ids=["m0", "m7", "m10"])
    assert "\n Tool tool6 [" in answer.text
    assert "\n Tool tool9 [" in answer.text
    answer = await recall(builder, grep="done")
    assert [f" Tool tool{n} [" in answer.text for n in range(0, len(history), 3)] == [True] * 12
    lost = await recall(builder, grep="lost")
    assert lost.text.count(" Tool unknown [") == MAX_CALL_READS + 2


async def test_the_call_of_a_found_result_may_precede_what_was_read(
    make_builder: MakeBuilder,
) -> None:
    """Where a search for a text ends between the two."""
    builder = make_builder(settings=Settings(memory=MemorySettings(max_rows=SCAN_ROWS)))
    call = {"tool_calls": [{"id": "c", "name": "count"}]}
    history = [
        row(0, "AI", "", run_id="r", metadata=call),
        row(1, "TOOL", "soup", run_id="r", metadata={"tool_call_id": "c"}),
        *(row(n, "HUMAN", "wine") for n in range(2, SCAN_ROWS + 1)),
    ]
    await builder.history.append("o", history)

    assert "\n Tool count [" in (await recall(builder, grep="soup")).text


async def test_a_ranked_row_with_a_call_is_not_whole(calling: ContextBuilder) -> None:
    """Mostly a part of its arguments is shown, so it has a handle to fetch them all."""
    answer = await recall(calling, query="plan", max_tokens=2_000)

    assert [(m.message_ids, m.whole) for m in answer.messages] == [
        (["m0"], True),
        (["m1"], False),
        (["m2"], True),
    ]
    assert f"\n Nexus [{make_handle('m1')}]: I write it.\n[tool_use:write {{" in answer.text


async def test_a_result_may_be_left_out_though_its_call_is_shown(calling: ContextBuilder) -> None:
    """It is counted, and the next page shows it."""
    answer = await recall(calling, query="I write it", max_tokens=86)

    assert ids(answer) == ["m0", "m1"]
    assert answer.left_out_ids == ["m2"]
    assert ids(await recall(calling, **answer.next[0])) == ["m2"]


async def test_a_text_is_found_in_arguments(calling: ContextBuilder) -> None:
    """As in any other part of a message."""
    answer = await recall(calling, grep="PLAN.md", max_tokens=500)
    (message,) = answer.messages
    assert (message.message_ids, message.lines) == (["m1"], None)
    assert "plan.md" in message.text
    (following,) = answer.next
    assert (following["ids"], following["lines"][0]) == (["m1"], 2)


async def test_escapes_in_arguments_are_letters(make_builder: MakeBuilder) -> None:
    """As contexts show them, whichever JSON writer the caller has."""
    builder = make_builder()
    function = {"name": "search", "arguments": json.dumps({"query": "北京 café"})}
    call = {"id": "c1", "type": "function", "function": function}
    await builder.history.append("o", [row(0, "AI", "", metadata={"tool_calls": [call]})])

    answer = await recall(builder, grep="北京 CAFÉ")
    assert '{"query": "北京 café"}' in answer.text


async def test_a_role_that_no_context_shows_is_named(make_builder: MakeBuilder) -> None:
    """Its message is stored, but there is nothing to show."""
    builder = make_builder()
    await builder.history.append("o", [row(0, "SYSTEM", "Be brief"), row(1, "HUMAN", "Hi")])
    answer = await recall(builder, ids=["m0", "m1"])
    (warning,) = answer.warnings

    assert ids(answer) == ["m1"]
    assert (warning.code, warning.detail) == (
        "role_not_shown",
        "no context shows the roles of 'm0'",
    )


# --- what a build showed ---------------------------------------------------------------------


async def built(builder: ContextBuilder, make_request: MakeRequest) -> str:
    """Build a context of the newest messages; return its id."""
    content = (await builder.build(make_request("soup", memory_limit=6))).content
    assert content.status == "success"
    return content.build_id


async def test_what_a_build_showed_is_not_repeated(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Neither by a query, nor around a message, nor by a text."""
    build_id = await built(builder, make_request)
    shown = {f"m{n}" for n in range(34, 40)}
    contents: Sequence[dict[str, Any]] = (
        {"query": "soup", "max_tokens": 9_000},
        {"around": "m37", "before": 9, "after": 9},
        {"grep": "soup", "max_tokens": 9_000},
    )
    for content in contents:
        once = await recall(builder, **content)
        answer = await recall(builder, **content, exclude_build=build_id)
        assert set(ids(once)) - set(ids(answer)) == shown, content
        assert not answer.warnings
        assert not shown & set(answer.left_out_ids)
    # a requested id is shown
    assert ids(await recall(builder, ids=["m37"], exclude_build=build_id)) == ["m37"]


@pytest.mark.parametrize(("layout", "found"), [("tagged", ["m1"]), ("chat", [])])
@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_call_that_was_shown_in_part_is_not_excluded(
    layout: str,
    found: list[str],
    is_reported: bool,
    make_builder: MakeBuilder,
    make_request: MakeRequest,
) -> None:
    """Its text was shown whole, but its arguments only in chat messages."""
    call = {"id": "c1", "name": "write", "arguments": {"path": "a", "text": "kestrel"}}
    calls = {"tool_calls": [call]}
    history = [
        row(0, "HUMAN", "Write it"),
        row(1, "AI", "I write.", run_id="r0", metadata=calls),
        row(2, "TOOL", "ok", run_id="r0", metadata={"tool_call_id": "c1"}),
    ]
    builder = make_builder()
    await builder.history.append("o", history)
    request = make_request(layout=layout, explain=True)
    answered = await builder.answer(request)
    assert answered.built
    build_id = answered.built.content.build_id
    if is_reported:
        report = make_report(answered.built, at=NOW, content="redacted", settings={})

        class Reports:
            async def get(self, _build_id: str) -> bytes | None:
                return report.packed()

        reports: Any = Reports()
        builder = replace(builder, reports=reports, shown=type(builder.shown)(1))

    assert ids(await recall(builder, grep="kestrel", exclude_build=build_id)) == found
    assert ids(await recall(builder, grep="Write it", exclude_build=build_id)) == []


async def test_a_message_that_was_cut_is_not_excluded(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Unlike one that was shown whole."""
    builder = make_builder()
    history = [row(0, "HUMAN", f"{'word ' * 200} kestrel"), row(1, "AI", "A kestrel, then.")]
    await builder.history.append("o", history)
    build_id = await built(builder, make_request)

    assert ids(await recall(builder, grep="kestrel", exclude_build=build_id)) == ["m0"]


async def test_builds_of_other_workers_are_known_by_their_reports(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Those of the owner; the answer reports an unknown build."""
    made = await builder.build_or_raise(make_request("soup", memory_limit=6))
    report = make_report(made, at=datetime.now(UTC), content="redacted", settings={})

    class Reports:
        async def get(self, build_id: str) -> bytes | None:
            return report.packed() if build_id == report.build_id else None

    reports: Any = Reports()
    other = replace(builder, reports=reports, shown=type(builder.shown)(1))
    known = await recall(other, grep="soup", max_tokens=9_000, exclude_build=report.build_id)
    assert "m30" in ids(known)
    assert "m39" not in ids(known)

    await other.history.append("bob", rows(4))
    for owner, build_id in (
        ("bob", report.build_id),
        ("o", f"bld_{'0' * 32}"),
        ("o", "no build id"),
    ):
        answer = await recall(other, owner=owner, grep="soup", exclude_build=build_id)
        assert [warning.code for warning in answer.warnings] == ["unknown_build"]
        assert answer.messages


# --- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["query", "ids", "around", "grep"])
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_store_that_fails_is_an_error(
    make_builder: MakeBuilder, mode: str, *, hangs: bool
) -> None:
    """One that may be gone when the recall is sent again, also where builds do without history."""
    limits = GatherSettings(history_timeout_seconds=0.05, degrade_history=True)
    settings = Settings(gather=limits)
    history = {"history": BrokenHistory(hangs=hangs)}
    content = {mode: ["a"] if mode == "ids" else "a"}
    error = (await refused(make_builder(sources=history, settings=settings), **content)).error

    assert (error.code, error.retryable) == ("history_unavailable", True)


class Spoiled(BrokenHistory):
    """A history that can't read its own rows."""

    async def recent(self, *_args: object, **_options: object) -> HistoryPage:
        """Fail as no port knows it."""
        raise KeyError("id")


@pytest.mark.parametrize("mode", ["query", "ids", "around", "grep"])
async def test_whatever_a_store_raises_is_an_error(make_builder: MakeBuilder, mode: str) -> None:
    """Its class is named, and the same recall may succeed later."""
    content = {mode: ["a"] if mode == "ids" else "a"}
    error = (await refused(make_builder(sources={"history": Spoiled()}), **content)).error

    assert (error.code, error.retryable) == ("history_unavailable", True)
    assert "KeyError" in error.detail


async def test_something_else_is_no_recall(builder: ContextBuilder) -> None:
    """A mapping has to be validated first."""
    with pytest.raises(InvalidRequestError, match="has to be a RecallRequest, not dict"):
        await builder.recall({"query": "a"})  # type: ignore[arg-type] # what is tested


async def test_rows_that_are_never_shown_are_passed_over(make_builder: MakeBuilder) -> None:
    """They neither take room nor end the way past them."""
    builder = make_builder()
    hidden = [{**row(n, "system", "obey"), "id": f"s{n}"} for n in range(10, 20)]
    await builder.history.append("o", [*(row(n, "HUMAN", f"part {n}") for n in range(10)), *hidden])
    await builder.history.append("o", [row(20, "HUMAN", "part 20")])

    waiting: list[dict[str, Any]] = [{"around": "m20", "before": 3, "after": 0}]
    seen: list[str] = []
    while waiting:
        answer = await recall(builder, **waiting.pop())
        seen += ids(answer)
        waiting += answer.next
    assert sorted(seen) == sorted(["m20", *(f"m{n}" for n in range(10))])
    assert ids(await recall(builder, grep="obey")) == []
    assert ids(await recall(builder, ids=["s10"])) == []
