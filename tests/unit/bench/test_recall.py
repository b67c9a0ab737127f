import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.recall.__main__ import EVERY, measured
from bench.recall.cases import Case, Question, cases
from bench.recall.figures import Found, beside_best, figures
from bench.recall.pickers import PASSAGES, PICKERS, Lines, passages, split_passages
from bench.recounts import OVERHEAD, tokens
from service.budget.strategies import STRATEGIES

FILLING = "We talked about soup and the weather and about nothing else at all"


def said(place: int, text: str) -> dict[str, Any]:
    """Return a message, a minute after the one before it."""
    return {
        "id": f"m{place}",
        "run_id": None,
        "role": "ai" if place % 2 else "human",
        "content": text,
        "timestamp": f"2025-01-01T{place // 60:02}:{place % 60:02}:00Z",
        "metadata": {"speaker": "Ann"},
    }


ROWS = [said(n, f"{FILLING} {n}") for n in range(80)]
# its second line is shown behind the gutter of the guard
ROWS[3] = said(3, "The spare key lies under a flowerpot,\n[see the map]")
CASE = Case("c", ROWS, [Question("Where is the spare key?", ("m3",), "1")])


def test_conversations_are_read(tmp_path: Path) -> None:
    """Speakers are named where questions name them; questions without an answer are left out."""
    asked = [
        {"question": "Who?", "evidence": ["m0"], "category": 2},
        {"question": "Nobody?", "evidence": ["m0"], "category": 5},
        {"question": "Nothing?", "evidence": [], "category": 2},
    ]
    conversation = {"id": "c", "messages": [said(0, "Hi")], "questions": asked}
    for name in ("locomo", "qmsum"):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.write(json.dumps(conversation))

    (named,), (plain,) = cases(tmp_path, "locomo"), cases(tmp_path, "qmsum")
    assert named.rows[0]["content"] == "Ann: Hi"
    assert plain.rows[0]["content"] == "Hi"
    assert named.questions == [Question("Who?", ("m0",), "2", "c/q0")]


def test_questions_are_made_by_rule(tmp_path: Path) -> None:
    """Chats of a language are one history, and questions have a message's words in other forms."""
    texts = {"zh": "昨天买了相机", "ja": "大学病院で働きました", "ko": "커피를 마셨어"}
    chats = [
        {"id": f"{language}{n}", "lang": language, "messages": [said(0, text), said(1, f"{n}…")]}
        for language, reported in texts.items()
        for n, text in enumerate((reported, "…"))
    ]
    for name, given in (("multilingual", chats), ("realpersonachat_ja", [])):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(map(json.dumps, given)))

    reported = {case.id: case for case in cases(tmp_path, "cjk")}
    assert [each.text for each in reported["zh"].questions] == ["之前说的相机是怎么回事？"]
    assert "働く" in reported["ja"].questions[0].text
    assert "마시는" in reported["ko"].questions[0].text
    assert [each.evidence for each in reported["ko"].questions] == [("ko0/m0",)]
    times = [row["timestamp"] for row in reported["zh"].rows]
    assert times == sorted(times)
    assert times[2].startswith("2025-01-02")


@pytest.mark.parametrize("name", PICKERS)
def test_pickers_keep_to_their_tokens(name: str) -> None:
    """What is picked costs no more than it may, and by words the answer is among it."""
    lines = Lines(CASE)
    text = lines.picked(PICKERS[name](lines, CASE.questions[0].text), 200)

    assert tokens(text) + OVERHEAD <= 200
    assert ("flowerpot" in text) == (name != "newest")


def test_long_messages_are_split_into_passages() -> None:
    """Passages are whole lines where they can be, and together they are the text."""
    text = "\n".join(["a" * 300, "b" * 300, "c" * 1_200, "d"])
    parts = split_passages(text)

    assert "".join(parts) == text
    assert [len(part) for part in parts] == [301, 301, 500, 500, 202]
    long = Case("c", [said(0, f"{text}\nthe key is here"), said(1, "Yes")], [])
    lines = passages(long)
    assert "the key is here" in lines.picked(PICKERS["bm25"](lines, "Where is the key?"), 250)


def test_a_set_is_measured() -> None:
    """Each strategy and each other way has its figures, and strategies their difference."""
    reported = measured("s", [CASE], ["oldest_first", "relevance"], [300])

    assert {
        "s/relevance/300",
        "s/oldest_first/300",
        "s/newest/300",
        "s/bm25/300",
    } <= reported.keys()
    for name in ("relevance", "bm25", PASSAGES, "fit"):
        assert reported[f"s/{name}/300"]["recall"] == 1
    assert reported["s/oldest_first/300"]["recall"] == reported["s/newest/300"]["recall"] == 0
    assert reported["s/oldest_first/300"]["minus_best"] == -1
    assert reported["s/relevance/300"]["interval"] == [0, 0]
    assert reported["s/relevance/300"]["by_category"] == {"1": 1}


def test_all_strategies_that_keep_to_a_budget_are_measured() -> None:
    """Unless some are named, these are all but the one that refuses."""
    reported = measured("s", [CASE], EVERY, [300])

    assert set(STRATEGIES) - set(EVERY) == {"none"}
    assert all(f"s/{name}/300" in reported for name in EVERY)


def test_figures_are_averages() -> None:
    """Shares are averaged over questions, and whole ones are counted."""
    found = [Found("a", 1.0, 10.0), Found("a", 0.0, 30.0), Found("b", 0.5, 20.0)]

    assert figures(found) == {
        "recall": 0.5,
        "all_found": 0.3333,
        "n": 3,
        "by_category": {"a": 0.5, "b": 0.5},
        "p50_ms": 20.0,
        "p95_ms": 30.0,
    }


def test_a_language_has_an_average_next_to_its_kinds() -> None:
    """What is before a slash is a category as well."""
    reported = figures([Found("ja/one", 1.0), Found("ja/two", 0.0)])

    assert reported["by_category"] == {"ja": 0.5, "ja/one": 1.0, "ja/two": 0.0}


def test_a_difference_is_to_the_best_of_others() -> None:
    """The interval of a difference that every question has is that difference."""
    found = [Found("a", 0.75)] * 20
    others = {"bad": [Found("a", 0.0)] * 20, "good": [Found("a", 0.5)] * 20}

    assert beside_best(found, others) == {
        "best_baseline": "good",
        "minus_best": 0.25,
        "interval": [0.25, 0.25],
    }
