import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.recall import agents as made
from bench.recall.agents import History
from bench.recall.cases import Case, Question, cases
from bench.recall.evidence import share_answered, share_kept
from bench.recall.pickers import CHARS, PICKERS, Lines, passages
from bench.recall.texts import full_text
from formatters.guard import GUARD
from formatters.printed import format_arguments, list_arguments
from formatters.rows import read_row

TURNS = 6
#: As many words as a trajectory has messages.
WORDS = [f"{one}{two}" for one in ("bar", "col", "dem") for two in ("gan", "mik", "pel")] * 2


def trajectory(name: str, *, native: bool = False) -> dict[str, Any]:
    """Return messages of an agent that edits files, by calls or by commands in its texts.

    Each word is in two messages, and each two words in one.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You mend code."}]
    if not native:
        messages.append({"role": "user", "content": "--- DEMONSTRATION ---"})
    words = [f"{word}{name}{n // 9}" for n, word in enumerate(WORDS)]
    pairs = [f"{word} near the {words[n - 5]}" for n, word in enumerate(words)]
    for turn in range(TURNS):
        asked, done, shown = pairs[3 * turn : 3 * turn + 3]
        prose, command = f"I am looking for {done}.", f'edit "{done}"\nand print("{done}")'
        text = f"There was {shown},\r\nand nothing else"
        messages.append({"role": "user", "content": f"Please look for {asked}."})
        if native:
            function = {"name": "edit", "arguments": json.dumps({"command": command})}
            calls = [{"id": f"c{turn}", "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": prose, "tool_calls": calls})
            messages.append({"role": "tool", "content": text, "tool_call_id": f"c{turn}"})
        else:
            content = f"{prose}\n```\n{command}\n```"
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": "user", "content": text})
    return {"id": name, "messages": messages}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two trajectories of each set, of which small histories are made."""
    rows = [
        {"id": f"r{n}", "run_id": "r", "role": "human", "content": f"Hi {n}", "metadata": {}}
        for n in range(3)
    ]
    for n, row in enumerate(rows):
        row["timestamp"] = f"2025-01-01T08:00:0{n}Z"
    given = {
        "swe_agent": [trajectory("a"), trajectory("b")],
        "tau_airline": [trajectory("c", native=True), trajectory("d", native=True)],
        "tau_threads": [{"id": "e", "messages": rows}],
    }
    for name, there in given.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, there)))
    histories = (
        History("s", "calls", (0, 1), 6, 1),
        History("w", "text", (0, 1), 6, 2),
        History("n", "airline", (0, 1), 6, 3),
        History("t", "thread", (0,), 6, 4),
    )
    monkeypatch.setattr(made, "HISTORIES", histories)
    return tmp_path


def test_each_question_asks_for_a_line_of_its_evidence(data: Path) -> None:
    """Lines of results, calls, prose and users are asked for, the same each time."""
    there = cases(data, "agents")
    asked = [(case, question) for case in there for question in case.questions]

    assert there == cases(data, "agents")
    assert {q.category for _, q in asked} == {"result", "call", "prose", "human"}
    assert len({q.id for _, q in asked}) == len(asked)
    for case, question in asked:
        (text,) = (full_text(row) for row in case.rows if row["id"] in question.evidence)
        assert share_answered(question, text) == share_kept(case, question, text) == 1


def test_commands_in_texts_become_calls(data: Path) -> None:
    """What follows them are their results, and each history ends with thanks."""
    calls, texts, native, thread = cases(data, "agents")
    roles = [row["role"] for row in calls.rows]

    assert roles[:-2] == ["human", "ai", "tool"] * TURNS * 2
    assert [row["role"] for row in native.rows] == roles
    assert {row["role"] for row in texts.rows} == {"human", "ai"}
    (call,) = read_row(calls.rows[1]).tool_calls
    assert (call.name, call.id) == ("edit", read_row(calls.rows[2]).tool_call_id)
    assert "DEMONSTRATION" not in str(calls.rows)
    assert [row["id"] for row in thread.rows] == ["t/r0", "t/r1", "t/r2", "t/end0", "t/end1"]
    for case in (calls, texts, native, thread):
        times = [row["timestamp"] for row in case.rows]
        assert times == sorted(times)


CODE = 'if path == "C:\\new":\n\tsay("<|im_start|>; [a]")'
ROW = {
    "id": "m",
    "role": "ai",
    "timestamp": "2025-01-01T08:00:00Z",
    "content": "",
    "tool_calls": [{"id": "c", "name": "edit", "arguments": {"text": CODE, "line": 3}}],
}


def test_lines_of_arguments_are_found_as_they_are_printed() -> None:
    """Escapes of JSON and the guard's marks don't matter, and a call isn't kept unseen."""
    printed = format_arguments(list_arguments(read_row(ROW).tool_calls), GUARD)
    asked = [Question("?", ("m",), "call", passages=(line,)) for line in CODE.splitlines()]
    case = Case("c", [ROW], asked)

    assert "\\n" in printed
    for question in asked:
        assert share_answered(question, printed) == share_kept(case, question, printed) == 1
        assert share_answered(question, "if path") == share_kept(case, question, "if path") == 0


def test_other_ways_see_calls_with_all_their_arguments() -> None:
    """They search them and print them, as far as a line goes, and results as well."""
    result = {**ROW, "id": "r", "role": "tool", "content": "saved it", "tool_calls": []}
    long = {**ROW, "content": "x" * CHARS}
    case = Case("c", [ROW, result, long], [])
    lines = Lines(case)

    assert "im_start" in lines.picked(PICKERS["bm25"](lines, "Where is the path?"), 100)
    assert [text[19:].partition(":")[0] for text in lines.texts] == ["Nexus", "Tool", "Nexus"]
    assert "edit" not in lines.texts[2]
    assert any("edit" in text for text in passages(case).texts[2:])
