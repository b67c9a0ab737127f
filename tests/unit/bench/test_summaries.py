import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.summaries import (
    METHODS,
    TUNED,
    Conversation,
    Kept,
    Method,
    Question,
    figures_of,
    measure,
    newest,
    read,
)
from formatters.rows import read_rows
from tests.support import row

ROWS = [
    row(1, "human", "We keep bees near Évora."),
    row(2, "ai", "How many hives are there?"),
    row(3, "human", "Eleven hives, since 2020."),
]
TALK = Conversation(read_rows(ROWS), (Question("Eleven", (2,)), Question("?", (0,))))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("most", [0, 10, 40, 500])
def test_every_method_keeps_to_the_tokens(method: Method, most: int) -> None:
    """Else there would be nothing to compare."""
    assert len(method(TALK.messages, most, len)) <= most


def test_the_newest_are_kept_as_they_are_shown() -> None:
    """With time and speaker."""
    assert newest(TALK.messages, 90, len) == (
        "  Nexus: How many hives are there?\n[2025-12-09 00:03] Human: Eleven hives, since 2020."
    )


def test_words_count_in_one_line() -> None:
    """What is spread over lines is not the message."""
    whole = Kept(TALK, "- user: Eleven hives, since 2020.\n- user: bees")
    spread = Kept(TALK, "eleven\nhives\nsince\n2020")

    assert whole.share(2) == pytest.approx(1)
    assert whole.share(1) < 0.5
    assert spread.share(2) < 0.5
    assert (spread.answers("Eleven"), whole.answers("Twelve")) == (1.0, 0.0)


def test_figures() -> None:
    """Averages over questions; an answer without words is no question for `answers`."""
    figures = figures_of(TALK, "- user: Eleven hives, since 2020.", len)
    assert figures == pytest.approx({"tokens": 33, "words": 0.5, "survived": 0.5, "answers": 1})


def test_what_was_tuned_on_is_not_measured(tmp_path: Path) -> None:
    """Nor are adversarial questions and those without evidence."""
    asked = [
        {"question": "q", "answer": "Eleven", "evidence": ["m3"], "category": 1},
        {"question": "q", "answer": "Eleven", "evidence": ["m3"], "category": 5},
        {"question": "q", "answer": "Eleven", "evidence": ["m9"], "category": 1},
    ]
    given: list[dict[str, Any]] = [
        {"id": id_, "messages": ROWS, "questions": asked} for id_ in ("new", *TUNED)
    ]
    with gzip.open(tmp_path / "locomo.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in given)

    (only,) = read(tmp_path)
    assert only.questions == (Question("Eleven", (2,)),)
    assert measure(tmp_path)["500"]["extract"]["survived"] == 1.0
