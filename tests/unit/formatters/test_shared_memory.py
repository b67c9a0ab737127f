from typing import Any

import pytest

from formatters.model import Facts, MemoryView, Row, TrimPolicy
from formatters.rows import read_rows
from formatters.shared_memory import NO_HISTORY, NONE_FITS, MemoryFormatter, shared_memory

HEADER = "[SHARED_MEMORY count={}]\nRecent conversation memory:\n\n"


def row(role: str, content: Any, minute: int | None = 30, **fields: Any) -> Row:
    """Return a row of 2025-12-10, at a minute past 15:00 UTC or at no time."""
    stamp = None if minute is None else f"2025-12-10T15:{minute:02}:00Z"
    return {"role": role, "content": content, "timestamp": stamp, **fields}


def calls(*names: str, **arguments: object) -> dict[str, Any]:
    """Return the metadata of a message that calls these tools."""
    return {"tool_calls": [{"id": name, "name": name, "arguments": arguments} for name in names]}


def shown(*rows: Row, **view: Any) -> str:
    """Return the block for rows given oldest first."""
    memory = MemoryView(**view)
    return shared_memory(Facts(current_input="", history=read_rows(rows), memory=memory)).text


def body(*rows: Row, **view: Any) -> str:
    """Return what stands under the header."""
    return shown(*rows, **view).split("\n\n", maxsplit=1)[1]


def count(*rows: Row, **view: Any) -> int:
    """Return the N of ``count=N``."""
    head = shown(*rows, **view).partition("]")[0]
    return int(head.removeprefix("[SHARED_MEMORY count="))


def test_the_documents_example() -> None:
    """A turn with a search reads as the source document prints it."""
    rows = (
        row("HUMAN", "Search for AI", run_id="r"),
        row(
            "AI", "I'll search...", run_id="r", metadata=calls("web_search", query="AI development")
        ),
        row("TOOL", "a long result", run_id="r"),
        row("AI", "Based on search results...", run_id="r"),
    )

    assert shown(*rows) == (
        "[SHARED_MEMORY count=2]\nRecent conversation memory:\n\n"
        "[2025-12-10 15:30] Human: Search for AI\n"
        "  Nexus: I'll search...\n"
        "[tool_use:web_search, query:AI development]\n"
        "Based on search results..."
    )


def test_no_history() -> None:
    """Without history a placeholder follows the header."""
    assert shown() == (
        "[SHARED_MEMORY count=0]\nRecent conversation memory:\n\n(No previous conversations yet)"
    )


@pytest.mark.parametrize("role", ["TOOL", "system", "command", "stranger"])
def test_rows_that_are_not_shown(role: str) -> None:
    """Tool results alone and rows of other roles print nothing."""
    assert shown(row(role, "text")) == HEADER.format(0) + NO_HISTORY


def test_a_human_row() -> None:
    """A human message has its time in minutes."""
    assert body(row("HUMAN", "Hello")) == "[2025-12-10 15:30] Human: Hello"


def test_an_answer_is_indented() -> None:
    """An answer under its human message is indented and has no time."""
    rows = (row("human", "Hello"), row("ai", "Hi"))

    assert body(*rows) == "[2025-12-10 15:30] Human: Hello\n  Nexus: Hi"


def test_an_answer_alone_has_its_time() -> None:
    """An answer that follows no human message shows when it was given."""
    rows = (row("ai", "One"), row("ai", "Two", 31))

    assert body(*rows) == "[2025-12-10 15:30] Nexus: One\n[2025-12-10 15:31] Nexus: Two"


def test_an_answer_under_another_runs_human() -> None:
    """An answer is indented under its own human message only."""
    rows = (row("ai", "Late", 31, run_id="r0"), row("human", "Hello", run_id="r1"))

    assert body(*rows) == "[2025-12-10 15:30] Human: Hello\n[2025-12-10 15:31] Nexus: Late"


@pytest.mark.parametrize("roles", [("HUMAN", "AI"), ("user", "assistant"), ("User", "ai")])
def test_synonyms_of_roles(roles: tuple[str, str]) -> None:
    """Every name of the two roles is shown alike."""
    human, ai = roles

    assert body(row(human, "Q"), row(ai, "A")) == "[2025-12-10 15:30] Human: Q\n  Nexus: A"


def test_answers_of_a_run_merge() -> None:
    """The answers of one run are one row, and count as one."""
    rows = (row("ai", "A", run_id="r"), row("ai", "B", 31, run_id="r"))

    assert shown(*rows) == HEADER.format(1) + "[2025-12-10 15:31] Nexus: A\nB"


def test_answers_without_a_run_do_not_merge() -> None:
    """Answers without a run are rows of their own; only the first stands under the human one."""
    rows = (row("human", "Q"), row("ai", "A", 31), row("ai", "B", 32))

    assert shown(*rows) == HEADER.format(3) + (
        "[2025-12-10 15:30] Human: Q\n  Nexus: A\n[2025-12-10 15:32] Nexus: B"
    )


def test_an_empty_run_id_is_none() -> None:
    """Rows with an empty run id have no run."""
    assert count(row("ai", "A", run_id=""), row("ai", "B", run_id="")) == 2


def test_count_is_of_printed_rows() -> None:
    """Five messages of two runs are four rows."""
    rows = [row(role, "x", n, run_id=run) for n, (role, run) in enumerate(
        [("human", "r1"), ("ai", "r1"), ("ai", "r1"), ("human", "r2"), ("ai", "r2")]
    )]  # fmt: skip

    assert count(*rows) == 4


def test_turns_print_whole() -> None:
    """Two runs that overlap in time are shown one after the other."""
    rows = (
        row("human", "q1", 0, run_id="r1"),
        row("human", "q2", 1, run_id="r2"),
        row("ai", "a1", 2, run_id="r1"),
        row("ai", "a2", 3, run_id="r2"),
    )

    assert body(*rows) == (
        "[2025-12-10 15:00] Human: q1\n  Nexus: a1\n[2025-12-10 15:01] Human: q2\n  Nexus: a2"
    )


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([("", ["t"]), ("Answer", [])], "[tool_use:t]\nAnswer"),
        ([("A", []), ("", ["t"]), ("B", [])], "A\n[tool_use:t]\nB"),
        ([("A", ["x"]), ("B", ["y"]), ("C", [])], "A\n[tool_use:x]\nB\n[tool_use:y]\nC"),
        ([("A", ["x", "y"])], "A\n[tool_use:x; tool_use:y]"),
        ([("\n\n", ["t"])], "[tool_use:t]"),
        ([(None, ["t"]), (None, [])], "[tool_use:t]"),
    ],
)
def test_where_annotations_stand(answers: list[tuple[str, list[str]]], said: str) -> None:
    """Each message that calls tools is followed by its own annotation."""
    rows = [
        row("ai", text, n, run_id="r", metadata=calls(*names))
        for n, (text, names) in enumerate(answers, 1)
    ]

    assert body(row("human", "Q", 0, run_id="r"), *rows) == (
        f"[2025-12-10 15:00] Human: Q\n  Nexus: {said}"
    )


def test_texts_of_several_lines() -> None:
    """Lines of a message stand as they are; only its first is indented."""
    rows = (row("human", "one\n  two\n\nthree"), row("ai", "four\nfive"))

    assert body(*rows) == ("[2025-12-10 15:30] Human: one\n  two\n\nthree\n  Nexus: four\nfive")


@pytest.mark.parametrize("stamp", [None, "", "yesterday", 1765380600])
def test_unknown_times(stamp: object) -> None:
    """A row whose time cannot be read says so, and keeps its place."""
    rows = (
        {"role": "human", "content": "Q", "timestamp": stamp},
        {"role": "ai", "content": "A", "timestamp": stamp},
    )

    assert body(*rows) == "[Unknown time] Human: Q\n  Nexus: A"


@pytest.mark.parametrize(
    ("west", "stamp"), [(0, "15:30"), (-480, "23:30"), (330, "10:00"), (-525, "2025-12-11 00:15")]
)
def test_the_zone_of_times(west: int, stamp: str) -> None:
    """Times are shown in the zone that is asked for."""
    assert f"{stamp}] Human: Q" in body(row("human", "Q"), minutes_west=west)


@pytest.mark.parametrize(
    "odd",
    [
        row("ai", None),
        row("human", None),
        row("human", " "),
        row("ai", [], metadata=None),
        row("human", {"type": "audio"}),
        {},
    ],
)
def test_odd_rows_do_not_stop_a_block(odd: Row) -> None:
    """A row that says nothing is left out, and the others are shown."""
    rows = (row("human", "Q", run_id="r"), odd, row("ai", "A", run_id="r"))

    assert shown(*rows) == HEADER.format(2) + "[2025-12-10 15:30] Human: Q\n  Nexus: A"


def test_left_out_rows_have_a_reason() -> None:
    """Rows of other roles, empty rows and results without a turn are told apart."""
    rows = (
        row("system", "S", id="s"),
        row("ai", "", id="e"),
        row("tool", "T", id="t", run_id="gone"),
        row("human", "Q", id="q"),
    )
    block = shared_memory(Facts(current_input="", history=read_rows(rows)))

    assert {each.message_ids: each.reason for each in block.omissions} == {
        ("s",): "role",
        ("e",): "empty",
        ("t",): "tool_only",
    }
    assert [m.id for entry in block.entries for m in entry.messages] == ["q"]


def test_the_block() -> None:
    """The block yields by the strategy, changes with every turn, and its counts add up."""
    block = shared_memory(Facts(current_input="", history=read_rows([row("human", "Q")])))

    assert (block.tag, block.role, block.gives_way) == (
        "SHARED_MEMORY",
        "user",
        TrimPolicy.BY_STRATEGY,
    )
    assert block.additive
    assert block.volatile
    assert block.placeholder_when_cut == NONE_FITS


def test_a_still_header_says_no_number() -> None:
    """It is the same in every build, so that only its rows can change the block."""
    rows = [row("human", f"q{n}", n) for n in range(3)]
    counted, still = (
        shared_memory(
            Facts(
                current_input="",
                history=read_rows(rows),
                memory=MemoryView(limit=2, header=header),
                starts={"m0": 7},
            )
        )
        for header in ("counted", "still")
    )

    assert still.text == counted.text.replace(" count=2]", "]")
    assert still.text.startswith("[SHARED_MEMORY]\nRecent conversation memory:\n\n[")
    assert (counted.volatile, still.volatile) == (True, False)
    assert counted.moves
    assert still.moves
    assert still.starts == {"m0": 7}


def test_the_face_takes_the_newest_first() -> None:
    """The formatter of the source system takes rows newest first and prints them oldest first."""
    rows = [row("human", f"q{n}", 30 - n) for n in range(30)]

    text = MemoryFormatter.format_shared_memory(rows)

    assert text.startswith(HEADER.format(20) + "[2025-12-10 15:11] Human: q19\n")
    assert text.endswith("\n[2025-12-10 15:30] Human: q0")
    assert MemoryFormatter.format_shared_memory(rows, limit=None).startswith(HEADER.format(30))
    assert MemoryFormatter.format_shared_memory([]) == HEADER.format(0) + NO_HISTORY
