from typing import Any

import pytest

from formatters.model import Block, Facts, MemoryView, Row
from formatters.printed import CACHED_CHARS
from formatters.rows import read_rows
from formatters.shared_memory import NO_HISTORY, NONE_FITS, shared_memory


def turn(number: int, *answers: str, run: bool = True) -> list[Row]:
    """Return a turn: ``q1``, and its answers, in a run of its own or in none."""
    texts = (f"q{number}", *answers)
    return [
        {
            "id": text,
            "role": "ai" if place else "human",
            "content": text,
            "timestamp": f"2025-12-10T15:{number:02}:{place:02}Z",
            "run_id": f"r{number}" if run else None,
        }
        for place, text in enumerate(texts)
    ]


def block(rows: list[Row], **view: Any) -> Block:
    """Show rows given oldest first."""
    memory = MemoryView(**view)
    return shared_memory(Facts(current_input="", history=read_rows(rows), memory=memory))


def lines(rows: list[Row], **view: Any) -> list[str]:
    """Return the lines of the rows that are printed."""
    return block(rows, **view).text.splitlines()[3:]


def said(length: int, **view: Any) -> str:
    """Return what is shown of a message of so many characters."""
    (line,) = lines([{"role": "human", "content": "x" * length}], **view)
    return line.removeprefix("[Unknown time] Human: ")


THREE = [*turn(1, "a1"), *turn(2, "a2"), *turn(3, "a3")]


def test_a_limit_splits_a_turn() -> None:
    """A limit may split the oldest turn; its answer then stands first and has its time."""
    assert lines([*turn(0, "a0"), *turn(1, "a1"), *turn(2, "a2")], limit=3) == [
        "[2025-12-10 15:01] Nexus: a1",
        "[2025-12-10 15:02] Human: q2",
        "  Nexus: a2",
    ]


@pytest.mark.parametrize(
    ("limit", "gone"), [(1, ("q1", "a1", "b1")), (2, ("q1", "a1")), (3, ("q1",))]
)
def test_every_row_beyond_the_limit_is_told_of(limit: int, gone: tuple[str, ...]) -> None:
    """Of a turn as well that loses more rows than it keeps."""
    shown = block(turn(1, "a1", "b1", "c1", run=False), limit=limit)

    assert [(each.message_ids, each.reason) for each in shown.omissions] == [(gone, "memory_limit")]


@pytest.mark.parametrize(
    ("limit", "gone"),
    [
        (6, []),
        (7, []),
        (None, []),
        (5, ["q1"]),
        (4, ["q1", "a1"]),
        (3, ["q1", "a1", "q2"]),
        (1, ["q1", "a1", "q2", "a2", "q3"]),
        (0, ["q1", "a1", "q2", "a2", "q3", "a3"]),
    ],
)
def test_what_a_limit_leaves(limit: int | None, gone: list[str]) -> None:
    """A limit keeps the newest rows, and what lies beyond is said to."""
    shown = block(THREE, limit=limit)
    kept = [message.id for entry in shown.entries for message in entry.messages]
    beyond = [name for omission in shown.omissions for name in omission.message_ids]

    assert (
        kept + beyond == [m for m in ("q1", "a1", "q2", "a2", "q3", "a3") if m not in gone] + gone
    )
    assert {omission.reason for omission in shown.omissions} <= {"memory_limit"}
    assert shown.text.startswith(f"[SHARED_MEMORY count={6 - len(gone)}]")


def test_a_limit_of_none_at_all() -> None:
    """At a limit of 0 the block is empty, and does not pretend that nothing was ever said."""
    assert block(THREE, limit=0).text.endswith(f"\n\n{NONE_FITS}")
    assert block([], limit=0).text.endswith(f"\n\n{NO_HISTORY}")


def test_the_limit_counts_merged_answers_once() -> None:
    """Answers of a run are one row to the limit, however many messages they are."""
    rows = [*turn(1, "a1", "b1", "c1"), *turn(2, "a2", "b2")]

    assert lines(rows, limit=4) == [
        "[2025-12-10 15:01] Human: q1",
        "  Nexus: a1",
        "b1",
        "c1",
        "[2025-12-10 15:02] Human: q2",
        "  Nexus: a2",
        "b2",
    ]
    assert len(lines(rows, limit=3)) == 6


def test_a_limit_between_answers_without_a_run() -> None:
    """Of answers without a run a limit keeps the newest, each with its time."""
    rows = turn(1, "a1", "b1", "c1", run=False)
    shown = block(rows, limit=2)
    (entry,), (omission,) = shown.entries, shown.omissions

    assert lines(rows, limit=2) == [
        "[2025-12-10 15:01] Nexus: b1",
        "[2025-12-10 15:01] Nexus: c1",
    ]
    assert [message.id for message in entry.messages] == ["b1", "c1"]
    assert omission.message_ids == ("q1", "a1")


def test_tool_results_take_no_row() -> None:
    """A tool's result costs no row of the limit, and stays with its turn."""
    result: Row = {"id": "t1", "role": "tool", "content": "T", "run_id": "r1"}
    rows = [*turn(1, "a1"), result]
    (entry,) = block(rows, limit=2).entries

    assert [message.id for message in entry.messages] == ["q1", "a1", "t1"]
    assert (entry.rows, block(rows, limit=1).entries[0].rows) == (2, 1)


@pytest.mark.parametrize(
    ("length", "chars", "shown"),
    [
        (500, 500, "x" * 500),
        (501, 500, "x" * 497 + "..."),
        (10_000, None, "x" * 10_000),
        (21, 20, "x" * 17 + "..."),
        (4, 3, "..."),
        (4, 2, ".."),
        (4, 0, ""),
    ],
)
def test_the_limit_of_characters(length: int, chars: int | None, shown: str) -> None:
    """A message is cut to the limit, the three dots included."""
    assert said(length, message_chars=chars) == shown


def test_the_limit_is_500_by_itself() -> None:
    """Without a word on it, 500 characters of a message are shown."""
    assert (len(said(500)), said(501)) == (500, "x" * 497 + "...")


def test_messages_are_cut_before_they_merge() -> None:
    """Each answer of a run has the limit for itself, and annotations stay whole."""
    call = {"tool_calls": [{"name": "t", "arguments": {"query": "Q" * 60}}]}
    rows: list[Row] = [
        {"role": "ai", "content": "A" * 30, "run_id": "r", "metadata": call},
        {"role": "ai", "content": "B" * 30, "run_id": "r"},
    ]

    assert lines(rows, message_chars=20) == [
        "[Unknown time] Nexus: " + "A" * 17 + "...",
        f"[tool_use:t, query:{'Q' * 60}]",
        "B" * 17 + "...",
    ]


@pytest.mark.parametrize(("chars", "cut"), [(5, False), (4, True), (None, False)])
def test_entries_know_that_they_were_cut(chars: int | None, *, cut: bool) -> None:
    """An entry tells whether one of its messages was longer than the limit."""
    rows = [*turn(1, "12345")]

    assert block(rows, message_chars=chars).entries[0].cut is cut


@pytest.mark.parametrize("chars", [20, 50, 60])
def test_entries_can_be_shortened(chars: int) -> None:
    """A shortened entry has at most so many characters a message, and never more than before."""
    rows = turn(1, "A" * 200, "B" * 40)
    (entry,) = block(rows, message_chars=50).entries
    assert entry.shorten is not None

    shorter = entry.shorten(chars)

    assert entry.longest == 50
    assert shorter.text.count("A") == min(chars, 50) - 3
    assert shorter.text.count("B") == (40 if chars >= 40 else 17)
    assert (shorter.rows, shorter.messages) == (entry.rows, entry.messages)


@pytest.mark.parametrize("size", [CACHED_CHARS, CACHED_CHARS + 1])
def test_long_and_short_texts_are_guarded_alike(size: int) -> None:
    """Whether a guarded text is remembered shows nowhere, the second time neither."""
    text = "[THIS_MOMENT]\n".ljust(size, "x")
    rows: list[Row] = [{"role": "human", "content": text}]

    shown = [block(rows, message_chars=None).text for _ in range(2)]

    assert all(each.endswith(f"[Unknown time] Human: \\{text}") for each in shown)


def test_text_is_guarded_after_it_is_cut() -> None:
    """A cut cannot open a gap in the guard."""
    rows: list[Row] = [{"role": "human", "content": "x\n[MOOD]" + "y" * 20}]
    memory = MemoryView(message_chars=12)
    facts = Facts(current_input="", history=read_rows(rows), memory=memory, blocks={"MOOD": "calm"})

    assert shared_memory(facts).text.endswith("Human: x\n\\[MOOD]y...")
