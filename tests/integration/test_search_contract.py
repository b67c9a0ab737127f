"""What every store promises of a search, asked of each adapter."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from formatters.model import Row
from service.adapters.memory.store import open_memory_store
from service.ports.stores import SearchRequest, Stores
from service.recall.question import question_terms
from service.recall.search import MAX_FOUND, ROWS_TO_CALL
from tests.integration.test_retention_contract import minute
from tests.integration.test_store_contract import at, row, stores
from tests.stores import RECEIPT, Clock, Words

__all__ = ["stores"]  # a fixture

#: Words of no language, a few of them common.
WORDS = [f"{a}{b}{c}o" for a in "bdfgkl" for b in "aeiou" for c in "bdfgklmn"]
#: Texts that other query languages would read as more than words.
HOSTILE = ('"', "boat* OR", "NEAR(a b)", "terms: x", "-boat", "'; DROP TABLE searched", "\0", "^")


async def found(stores: Stores, *terms: str, **options: object) -> str:
    """Return the ids of what is found before the row ``end``, newest first."""
    settled = {"owner": "o", "conversation": None, "before": "end", "most": 40, **options}
    similar: Any = settled.get("similar", ())
    spans: Any = settled.get("spans", ())
    rows = await stores.history.search(
        str(settled["owner"]),
        settled["conversation"],  # type: ignore[arg-type]
        SearchRequest(terms, str(settled["before"]), int(str(settled["most"])), similar, spans),
    )
    return " ".join(str(each["id"]) for each in rows)


async def say(stores: Stores, *texts: str, owner: str = "o", **fields: object) -> None:
    """Store texts under their first words, a minute apart, and one row behind them."""
    rows = [row(text.split()[0], at(n), text, **fields) for n, text in enumerate(texts)]
    await stores.history.append(owner, [*rows, row("end", at(55), "end", **fields)])


async def test_rows_are_found_with_those_around_them(stores: Stores) -> None:
    """Rows within n tokens of a row come along, in the order of the history."""
    long = " ".join(["word"] * 200)
    await say(stores, f"a {long}", "b two", "c boats, all", "d four", f"e {long}")

    assert await found(stores, "boat") == "e d c b a"
    assert await found(stores, "boat", before="d") == "c b a"
    assert await found(stores, "boat", before="c") == ""
    assert await found(stores, "lake") == ""
    assert await found(stores, "boat", before="missing") == ""
    assert await found(stores, "boat", owner="nobody") == ""
    assert await found(stores) == ""


async def test_what_says_most_comes_first(stores: Stores) -> None:
    """If a whole stretch has a common word, its best row is not left out."""
    filling = " ".join(["word"] * 10)
    texts = [f"{filling} boat" if n % 5 == 0 else filling for n in range(100)]
    texts[95] += " green"
    rows = [row(f"m{n}", RECEIPT + timedelta(minutes=n), text) for n, text in enumerate(texts)]
    end = row("end", RECEIPT + timedelta(days=1), "end")
    await stores.history.append("o", [*rows, end])

    names = (await found(stores, "green", "boat")).split()
    assert len(names) == 40
    assert {f"m{n}" for n in range(85, 100)} <= set(names)


async def test_what_is_near_comes_first_where_rows_are_much_shorter_than_elsewhere(
    stores: Stores,
) -> None:
    """By its tokens, all that is around the hit would have few rows."""
    texts = ["far " * 200] * 100 + ["ok then, see you"] * 200
    texts[200] = "boat"
    rows = [row(f"m{n}", RECEIPT + timedelta(minutes=n), text) for n, text in enumerate(texts)]
    await stores.history.append("o", [*rows, row("end", RECEIPT + timedelta(days=1), "end")])

    names = (await found(stores, "boat")).split()
    assert len(names) == 40
    assert {f"m{n}" for n in range(195, 206)} <= set(names)


async def test_what_is_newer_takes_no_place_of_what_is_looked_for(stores: Stores) -> None:
    """Of two words that are in more rows than a search finds, those before the place count."""
    texts = ["green boat"] * (MAX_FOUND + 100) + ["lake"] * 200
    rows = [row(f"m{n}", RECEIPT + timedelta(seconds=n), text) for n, text in enumerate(texts)]
    await stores.history.append("o", rows)

    assert await found(stores, "green", "boat", before="m5") == "m4 m3 m2 m1 m0"


async def test_similar_rows_are_hits_without_a_term(stores: Stores) -> None:
    """In turns with those that have terms, with what is around them, of this owner alone."""
    far = " ".join(["far"] * 200)
    await say(stores, f"a {far}", f"b {far}", f"c {far}", f"d {far}", f"e boat {far}")
    await say(stores, "x word", "y word", "z word", owner="p")

    assert await found(stores, similar=[2], most=4) == "c b a"
    assert await found(stores, "lake", similar=[2, 99], most=4) == "c b a"
    assert await found(stores, "boat", similar=[2, 4], most=8) == "e d c b a"
    assert await found(stores, similar=[4, 5], before="d") == ""
    assert await found(stores, similar=[2], owner="p", most=4) == "z y x"


def steps(*names: str, prefix: str = "x", **fields: object) -> list[Row]:
    """Return rows of an agent that only calls tools, a second apart: calls, and results."""
    rows = []
    for n, name in enumerate(names):
        time = RECEIPT + timedelta(seconds=n)
        call = {"id": name, "name": "look", "arguments": {"path": f"{name}.py"}}
        called = {"role": "AI", "metadata": {"tool_calls": [call]}}
        result = {"role": "TOOL", "metadata": {"tool_call_id": name}}
        rows.append(row(f"{prefix}c{name[1:]}", time, "", **called, **fields))
        rows.append(
            row(f"{prefix}r{name[1:]}", time, f"shows {name} {name}line", **result, **fields)
        )
    return rows


async def test_tool_results_and_calls_are_found(stores: Stores) -> None:
    """By what a result says, and by each argument and the name of a call."""
    call = {"id": "1", "name": "get_weather", "arguments": {"days": 3, "where": {"city": "Lagos"}}}
    called = {"role": "AI", "metadata": {"tool_calls": [call]}}
    long = " ".join(["far"] * 200)
    await say(stores, "a word", f"b {long}", f"c {long}")
    rows = [row("call", at(10), "", **called), row("result", at(11), "Rainy", role="TOOL")]
    await stores.history.append("o", [*rows, row("x", at(12), f"x {long}"), row("y", at(13), long)])

    assert await found(stores, "raini") == "y x result call c b a"
    for term in ("lago", "weather", "citi"):
        assert await found(stores, term) == "x result call c b a", term
    assert await found(stores, "raini", before="result") == ""
    await stores.history.prune("o", ["call", "result"])
    assert await found(stores, "raini", "lago") == ""
    await stores.history.restore("o", ["call", "result"])
    assert await found(stores, "raini", "lago") == "y x result call c b a"


async def test_rows_without_tokens_are_found_in_a_long_run(stores: Stores) -> None:
    """A hit among many calls and results brings those next to it, not the first of them."""
    names = [f"n{n}" for n in range(200)]
    await stores.history.append("o", steps(*names, conversation_id="x"))
    await stores.history.append("o", steps(*names, prefix="y"), conversation_id="y")
    await stores.history.append(
        "o", [row("end", RECEIPT + timedelta(days=1), "end", conversation_id="x")]
    )

    older = "xc150 xr149 xc149 xr148 xc148 xr147"
    assert await found(stores, "n150line", conversation="x") == f"xr151 xc151 xr150 {older}"
    assert await found(stores, "n150line", conversation="x", before="xc151") == f"xr150 {older}"
    assert await found(stores, "n150line", conversation="x", before="xr150") == ""
    assert "xr150" in (await found(stores, "n150line")).split()
    two = (await found(stores, "n150line", "n148line", conversation="x")).split()
    assert two == [
        "xr151",
        "xc151",
        "xr150",
        "xc150",
        "xr149",
        "xc149",
        "xr148",
        "xc148",
        "xr147",
        "xc147",
        "xr146",
        "xc146",
        "xr145",
    ]


async def test_a_result_comes_with_its_call_from_before_other_results(stores: Stores) -> None:
    """It is the last call within a number of rows, in the scope of the search."""
    results = [f"r{n}" for n in range(ROWS_TO_CALL + 1)]
    calls = [{"id": name, "name": "look", "arguments": {}} for name in results]
    called = {"role": "AI", "metadata": {"tool_calls": calls}}
    rows = [row("earlier", at(0), "", **called), row("calls", at(1), "", **called)]
    for n, name in enumerate(results):
        fields = {"role": "TOOL", "metadata": {"tool_call_id": name}}
        rows.append(row(name, at(2 + n), f"boat{n}x", **fields))
    await stores.history.append("o", rows, conversation_id="x")
    await stores.history.append("o", [row("other", at(9), "", **called)], conversation_id="y")
    await stores.history.append("o", [row("end", at(55), "end")], conversation_id="x")

    last = ROWS_TO_CALL - 1
    near = " ".join(f"r{n}" for n in range(last + 1, last - 7, -1))
    assert await found(stores, f"boat{last}x", conversation="x") == f"{near} calls"
    assert await found(stores, f"boat{last}x") == f"{near} other"
    assert "calls" not in await found(stores, f"boat{last + 1}x", conversation="x")


async def test_a_search_is_of_one_owner_and_conversation(stores: Stores) -> None:
    """What others have said of it is neither found nor around it."""
    for owner in ("o", "p"):
        await say(stores, f"a boat of {owner}", "b boat", owner=owner, conversation_id="x")
    await stores.history.append("o", [row("z", at(1), "boat")], conversation_id="y")

    assert await found(stores, "boat") == "z b a"
    assert await found(stores, "boat", conversation="x") == "b a"
    assert await found(stores, "boat", conversation="y", before="z") == ""
    assert await found(stores, "boat", conversation="nowhere") == ""
    (one,) = await stores.history.search("p", None, SearchRequest(["boat"], "b", 9))
    assert one["content"] == "a boat of p"


async def test_rows_of_a_time_are_found_whatever_they_say(stores: Stores) -> None:
    """The row after each comes along, but a time ends before its end; others' rows don't count."""
    long = " ".join(["word"] * 200)
    await say(stores, *(f"{name} {long}" for name in "abcdef"), conversation_id="x")
    await say(stores, f"z {long}", owner="p")
    times = [(minute(0), minute(1))]

    assert await found(stores, spans=times) == "b a"
    assert await found(stores, spans=[(minute(0), minute(2))]) == "c b a"
    assert await found(stores, spans=times, before="b") == "a"
    assert await found(stores, spans=times, before="a") == ""
    assert await found(stores, spans=[(minute(1), minute(0))]) == ""
    assert await found(stores, spans=times, conversation="y") == ""
    assert await found(stores, "f", spans=times, conversation="x") == "f e d b a"
    await stores.history.prune("o", ["a"])
    assert await found(stores, spans=times) == ""
    # one row of the time, as at most half of the hits are there for it
    assert await found(stores, spans=[(minute(0), minute(2))], most=4) == "c b"


async def test_rows_that_are_gone_are_not_found(stores: Stores) -> None:
    """Pruned, they are found again once they are restored; expired and erased, never."""
    await say(stores, "a boat", "b lake", "c boat")
    for _ in range(2):
        await stores.history.prune("o", ["a"])
        assert await found(stores, "boat") == "c b"
    await stores.history.restore("o", ["a"])
    assert await found(stores, "boat") == "c b a"

    await stores.history.prune("o", ["c"])
    while await stores.history.expire(minute(3), 1):
        pass
    assert await found(stores, "boat") == ""
    assert await stores.history.restore("o", ["a", "c"]) == 0

    await say(stores, "d boat", owner="p")
    await stores.history.erase("p")
    assert await found(stores, "boat", owner="p") == ""
    await say(stores, "d lake", owner="p")
    assert await found(stores, "boat", owner="p") == ""
    assert await found(stores, "lake", owner="p") == "d"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Wir haben die Häuser gesehen und waren froh", "Haus"),
        ("昨日は琵琶湖で釣りをしました", "琵琶湖の話"),
        ("우리는 부산에서 배를 탔어요", "부산 여행"),
        ("周末我们去了颐和园划船", "颐和园怎么样"),
        ("The RÉSUMÉ was sent", "résumé"),
    ],
)
async def test_words_are_found_in_other_forms(stores: Stores, said: str, asked: str) -> None:
    """In languages that bend words, and in those that are written without blanks."""
    await say(stores, "a nothing", f"b {said}")
    assert "b" in (await found(stores, *question_terms(asked, []))).split()


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_search_is_for_words_whatever_they_are(stores: Stores, text: str) -> None:
    """No text of a stranger is read as a query, and none fails."""
    await say(stores, "a boat", "b lake")
    assert await found(stores, text, *question_terms(text, []), "nowhere") in ("", "b a")
    assert await found(stores, "lake") == "b a"


def talk(count: int) -> Sequence[Row]:
    """Return rows of two conversations, with late ones and tools among them."""
    draw = random.Random(7)  # noqa: S311 - to be repeatable, not secret
    return [
        row(
            f"m{n}",
            RECEIPT + timedelta(seconds=n // 2 - 300 * (n % 17 == 0)),
            " ".join(draw.choice(WORDS[: int(draw.random() ** 3 * 240) + 1]) for _ in range(8)),
            role=("HUMAN", "AI", "TOOL")[n % 3],
            conversation_id="xy"[n % 2],
        )
        for n in range(count)
    ]


async def test_stores_find_the_same(stores: Stores) -> None:
    """Rare words, common ones and pairs of them: whatever the store, the same rows in order."""
    rows = talk(1_000)
    async with open_memory_store(Words, Clock()) as memory:
        for each in (stores, memory):
            for start in range(0, len(rows), 250):
                await each.history.append("o", rows[start : start + 250])
            await each.history.prune("o", [f"m{n}" for n in range(100, 200)])
            await each.history.restore("o", [f"m{n}" for n in range(150, 180)])
        for terms in (WORDS[:3], WORDS[200:204], WORDS[1:2], WORDS[60:61], WORDS):
            for conversation in (None, "y"):
                asked = {"conversation": conversation, "before": "m901", "most": 60}
                there = await found(memory, *terms, **asked)
                assert await found(stores, *terms, **asked) == there
                assert len(there.split()) == 60
