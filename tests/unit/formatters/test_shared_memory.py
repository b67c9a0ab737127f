from typing import Any

import pytest

from formatters.guard import GUARD, OFF, Guard, guard_for
from formatters.model import Block, Entry, Facts, MemoryView, Row, TrimPolicy
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
    """Return what is under the header."""
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
    """Answers without a run are rows of their own; only the first is under the human one."""
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
        ([("", ["t"]), ("Answer", [])], "\n[tool_use:t]\nAnswer"),
        ([("A", []), ("", ["t"]), ("B", [])], " A\n[tool_use:t]\nB"),
        ([("A", ["x"]), ("B", ["y"]), ("C", [])], " A\n[tool_use:x]\nB\n[tool_use:y]\nC"),
        ([("A", ["x", "y"])], " A\n[tool_use:x; tool_use:y]"),
        ([("\n\n", ["t"])], "\n[tool_use:t]"),
        ([(None, ["t"]), (None, [])], "\n[tool_use:t]"),
    ],
)
def test_where_annotations_stand(answers: list[tuple[str, list[str]]], said: str) -> None:
    """Each message that calls tools is followed by its own annotation."""
    rows = [
        row("ai", text, n, run_id="r", metadata=calls(*names))
        for n, (text, names) in enumerate(answers, 1)
    ]

    assert body(row("human", "Q", 0, run_id="r"), *rows) == (
        f"[2025-12-10 15:00] Human: Q\n  Nexus:{said}"
    )


def test_texts_of_several_lines() -> None:
    """Plain lines of a message stay as they are; only its first is indented."""
    rows = (row("human", "one\n  two\n\nthree"), row("ai", "four\nfive"))

    assert body(*rows) == ("[2025-12-10 15:30] Human: one\n|   two\n\nthree\n  Nexus: four\nfive")


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
    """Times are shown in the zone that is requested."""
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
    """Rows of other roles, empty rows and results without a turn are distinguished."""
    rows = (
        row("system", "S", id="s"),
        row("ai", "", id="e"),
        row("tool", "T", id="t", run_id="gone"),
        row("human", "Q", id="q"),
        row("tool", "T", id="u"),
    )
    block = shared_memory(Facts(current_input="", history=read_rows(rows)))

    assert {each.message_ids: each.reason for each in block.omissions} == {
        ("s",): "role",
        ("e",): "empty",
        ("t",): "tool_only",
        ("u",): "tool_only",
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


def test_the_assistant_has_the_name_of_the_settings() -> None:
    """Under a message of the human, and where its answer is alone."""
    rows = [row("ai", "Hello", 0), row("human", "Hi", 1), row("ai", "Yes", 2)]
    view = MemoryView(assistant_name="Ada")
    block = shared_memory(Facts(current_input="", history=read_rows(rows), memory=view))

    assert " Ada: Hello" in block.text
    assert "\n  Ada: Yes" in block.text
    assert "Nexus" not in block.text


def test_the_face_takes_the_newest_first() -> None:
    """The formatter of the source system takes rows newest first and prints them oldest first."""
    rows = [row("human", f"q{n}", 30 - n) for n in range(30)]

    text = MemoryFormatter.format_shared_memory(rows)

    assert text.startswith(HEADER.format(20) + "[2025-12-10 15:11] Human: q19\n")
    assert text.endswith("\n[2025-12-10 15:30] Human: q0")
    assert MemoryFormatter.format_shared_memory(rows, limit=None).startswith(HEADER.format(30))
    assert MemoryFormatter.format_shared_memory([]) == HEADER.format(0) + NO_HISTORY


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
    """Return what is shown of a message of n characters."""
    (line,) = lines([{"role": "human", "content": "x" * length}], **view)
    return line.removeprefix("[Unknown time] Human: ")


THREE = [*turn(1, "a1"), *turn(2, "a2"), *turn(3, "a3")]


def test_a_limit_splits_a_turn() -> None:
    """A limit may split the oldest turn; its answer is then first and has its time."""
    assert lines([*turn(0, "a0"), *turn(1, "a1"), *turn(2, "a2")], limit=3) == [
        "[2025-12-10 15:01] Nexus: a1",
        "[2025-12-10 15:02] Human: q2",
        "  Nexus: a2",
    ]


@pytest.mark.parametrize(
    ("limit", "gone"), [(1, ("q1", "a1", "b1")), (2, ("q1", "a1")), (3, ("q1",))]
)
def test_every_row_beyond_the_limit_is_reported(limit: int, gone: tuple[str, ...]) -> None:
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

    assert lines(rows, limit=2) == ["[2025-12-10 15:01] Nexus: b1", "[2025-12-10 15:01] Nexus: c1"]
    assert [message.id for message in entry.messages] == ["b1", "c1"]
    assert omission.message_ids == ("q1", "a1")


def test_tool_results_take_no_row() -> None:
    """A tool's result costs no row of the limit, and stays with its turn."""
    result: Row = {"id": "t1", "role": "tool", "content": "T", "run_id": "r1"}
    call: Row = {"id": "c1", "role": "ai", "run_id": "r1"}
    rows = [*turn(1, "a1"), {**call, "metadata": {"tool_calls": [{"name": "f"}]}}, result]
    (entry,) = block(rows, limit=2).entries

    assert [message.id for message in entry.messages] == ["q1", "a1", "c1", "t1"]
    assert entry.reasons == {"c1": "call_only", "t1": "call_only"}
    assert (entry.rows, block(rows, limit=1).entries[0].rows) == (2, 1)


def test_printed_results_are_under_their_row() -> None:
    """Guarded, cut to a limit of their own, under the name of the tool; a blank one is no line."""
    calls = [{"id": "c1", "name": "f x:"}, {"id": "c2", "name": "g"}, {"id": "c3", "name": "h"}]
    rows: list[Row] = [
        {"id": "q", "role": "human", "content": "Q", "run_id": "r"},
        {"id": "c", "role": "ai", "run_id": "r", "metadata": {"tool_calls": calls}},
        result("c1", "one\n[RUN]"),
        result("c2", "x" * 25, name="own"),
        result("c3", " "),
        {"id": "a", "role": "ai", "content": "A", "run_id": "r"},
    ]
    shown = block(rows, tool_results="printed", tool_result_chars=20)
    (entry,) = shown.entries

    assert entry.text.split("\n")[1:] == [
        "  Nexus:",
        "[tool_use:f x:; tool_use:g; tool_use:h]",
        "  Tool f_x__8832c375: one",
        "| [RUN]",
        f"  Tool own: {'x' * 17}...",
        "[Unknown time] Nexus: A",
    ]
    assert entry.rows == 3
    assert entry.reasons == {"c": "call_only", "c2": "message_chars", "c3": "call_only"}
    assert entry.longest == 20


def result(call: str, text: str, **fields: str) -> Row:
    """Return the result of a call, with the call's id."""
    metadata = {"tool_call_id": call, **fields}
    return {"id": call, "role": "tool", "content": text, "run_id": "r", "metadata": metadata}


def agent_run(**run: str) -> list[Row]:
    """Return a run with two calls, whose ids are the same, as those of some providers."""
    return [
        row("HUMAN", "Hold it.", 0, id="q", **run),
        row("AI", "Searching.", 1, id="c", **run, metadata=calls("find", to="OPO")),
        row("TOOL", "TP562", 2, id="t", **run, metadata={"tool_call_id": "find"}),
        row("AI", "", 3, id="d", **run, metadata=calls("find", at="TP562")),
        row("TOOL", "held", 4, id="u", **run, metadata={"tool_call_id": "find"}),
        row("AI", "I held it.", 5, id="a", **run),
        row("AI", "Until noon.", 6, id="b", **run),
    ]


def test_printed_results_keep_the_order_of_a_run() -> None:
    """A run says its next words below the results, as it does without a run id."""
    shown = body(*agent_run(run_id="r"), tool_results="printed").split("\n")

    assert shown == [
        "[2025-12-10 15:00] Human: Hold it.",
        "  Nexus: Searching.",
        "[tool_use:find, to:OPO]",
        "  Tool find: TP562",
        "[2025-12-10 15:03] Nexus:",
        "[tool_use:find, at:TP562]",
        "  Tool find: held",
        "[2025-12-10 15:06] Nexus: I held it.",
        "Until noon.",
    ]
    alone = body(*agent_run(), tool_results="printed").split("\n")
    assert alone[:7] == shown[:7]
    assert count(*agent_run(run_id="r"), tool_results="printed") == 4


def test_results_that_are_not_printed_do_not_end_a_row() -> None:
    """Neither annotated ones nor blank ones."""
    rows = agent_run(run_id="r")
    blank = [{**each, "content": " "} if each["role"] == "TOOL" else each for each in rows]
    merged = [
        "  Nexus: Searching.",
        "[tool_use:find, to:OPO]",
        "[tool_use:find, at:TP562]",
        "I held it.",
        "Until noon.",
    ]

    assert body(*rows).split("\n")[1:] == merged
    assert body(*blank, tool_results="printed").split("\n")[1:] == merged


@pytest.mark.parametrize(
    ("limit", "gone"), [(1, "qctdu"), (2, "qct"), (3, "q"), (4, ""), (0, "qctduab")]
)
def test_a_limit_between_the_rows_of_a_run(limit: int, gone: str) -> None:
    """Where results are printed it may split a run: results go with the row of their call."""
    shown = block(agent_run(run_id="r"), limit=limit, tool_results="printed")
    kept = [message.id for entry in shown.entries for message in entry.messages]

    assert kept == [id_ for id_ in "qctduab" if id_ not in gone]
    assert [id_ for each in shown.omissions for id_ in each.message_ids] == [*gone]
    assert sum(entry.rows for entry in shown.entries) == limit


def test_a_result_before_its_call_is_under_it() -> None:
    """As clocks may differ."""
    call, early = agent_run(run_id="r")[1], agent_run(run_id="r")[2]

    assert body(early, call, tool_results="printed").split("\n") == [
        "[2025-12-10 15:01] Nexus: Searching.",
        "[tool_use:find, to:OPO]",
        "  Tool find: TP562",
    ]


def test_results_go_with_the_row_of_their_call() -> None:
    """Where the limit cuts that row away, they go too, and are no part of the turn that stays."""
    call = {"tool_calls": [{"id": "c1", "name": "f"}]}
    rows: list[Row] = [
        {"id": "q", "role": "human", "content": "Q"},
        {"id": "c", "role": "ai", "metadata": call},
        {"id": "a", "role": "ai", "content": "A"},
        {"id": "t", "role": "tool", "content": "T", "metadata": {"tool_call_id": "c1"}},
    ]
    shown = block(rows, limit=1)

    assert [message.id for message in shown.entries[0].messages] == ["a"]
    assert [each.message_ids for each in shown.omissions] == [("q", "c", "t")]


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


@pytest.mark.parametrize(("chars", "cut"), [(5, []), (4, ["a"]), (None, [])])
def test_entries_know_what_was_cut(chars: int | None, cut: list[str]) -> None:
    """An entry has a reason for each of its messages that was longer than the limit."""
    rows: list[Row] = [
        {"id": "q", "role": "human", "content": "1234", "run_id": "r"},
        {"id": "a", "role": "ai", "content": "12345", "run_id": "r"},
    ]
    (entry,) = block(rows, message_chars=chars).entries

    assert entry.reasons == dict.fromkeys(cut, "message_chars")
    assert entry.shorten
    assert entry.shorten(3).reasons == dict.fromkeys("qa", "shortened")


@pytest.mark.parametrize("chars", [20, 50, 60])
def test_entries_can_be_shortened(chars: int) -> None:
    """A shortened entry has at most n characters a message, and never more than before."""
    rows = turn(1, "A" * 200, "B" * 40)
    (entry,) = block(rows, message_chars=50).entries
    assert entry.shorten is not None

    shorter = entry.shorten(chars)

    assert entry.longest == 50
    assert shorter.text.count("A") == min(chars, 50) - 3
    assert shorter.text.count("B") == (40 if chars >= 40 else 17)
    assert (shorter.rows, shorter.messages) == (entry.rows, entry.messages)


def test_text_is_guarded_after_it_is_cut() -> None:
    """A cut cannot open a gap in the guard."""
    rows: list[Row] = [{"role": "human", "content": "x\n[MOOD]" + "y" * 20}]
    memory = MemoryView(message_chars=12)
    facts = Facts(current_input="", history=read_rows(rows), memory=memory)

    assert shared_memory(facts).text.endswith("Human: x\n| [MOOD]y...")


def test_a_turn_is_formatted_once_for_each_form() -> None:
    """Another limit of characters, time zone or guard makes another text of it."""
    rows = [row("HUMAN", "<|im_start|>Is it late at the lake?"), row("AI", "No.", 31)]
    history = tuple(message.keep_made() for message in read_rows(rows))

    def entries(guard: Guard = GUARD, **view: Any) -> tuple[Entry, ...]:
        memory = MemoryView(**view)
        facts = Facts(current_input="", history=history, memory=memory, guard=guard)
        return shared_memory(facts).entries

    forms: list[dict[str, Any]] = [
        {},
        {"message_chars": 20},
        {"minutes_west": -480},
        {"tool_results": "printed"},
        {"guard": OFF},
        {"guard": guard_for("gpt-5")},
    ]
    first = [entries(**form)[0] for form in forms]

    assert [entries(**form)[0] for form in forms] == first
    assert all(entries(**form)[0] is entry for form, entry in zip(forms, first, strict=True))
    assert entries(limit=1)[0].messages == history[1:]
    assert entries(limit=20)[0] is first[0]
    assert len({id(entry) for entry in first}) == len(forms)
    assert [entry.text for entry in first[1:5]] != [first[0].text] * 4
