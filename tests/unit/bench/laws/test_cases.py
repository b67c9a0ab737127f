import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.laws.cases import QUESTION, Case, read_cases

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def cases(folder: Path, *conversations: Any, name: str = "talk") -> dict[str, Case]:
    """Return the cases of conversations, by their names."""
    lines = "".join(f"{json.dumps(each)}\n" for each in conversations)
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(f"{lines}no JSON\n".encode()))
    return {case.name: case for case in read_cases(folder)}


def said(role: str, content: Any = "x", **fields: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **fields}


def test_a_question_goes_behind_everything(tmp_path: Path) -> None:
    """All that was said is history then."""
    talk = {"id": "t", "messages": [said("human", id="a")], "questions": [{"question": "When?"}]}
    (case,) = cases(tmp_path, talk).values()

    assert (case.words, case.candidates, case.run) == ("When?", ["a"], [])


def test_a_trajectory_ends_in_its_run(tmp_path: Path) -> None:
    """What follows the last human message is the run; the system's message is nobody's row."""
    (tmp_path / "tools.jsonl").write_text(json.dumps({"id": "set", "tools": [TOOL, TOOL, "odd"]}))
    roles = ("system", "user", "assistant", "tool", "user", "assistant")
    talk = {"id": 1, "tools_ref": "set", "messages": [said(role, role) for role in roles]}
    found = cases(tmp_path, talk)

    last, longest = found["talk/1#last"], found["talk/1#longest"]
    assert [row["role"] for row in last.past] == ["user", "assistant", "tool"]
    assert [row["role"] for row in last.run] == ["assistant"]
    assert [row["role"] for row in longest.run] == ["assistant", "tool"]
    assert last.tools == [TOOL]
    assert len(set(last.candidates)) == 4


@pytest.mark.parametrize("odd", [[], 7, {}, {"messages": [7]}, {"messages": None}])
def test_what_is_no_conversation_is_passed_over(tmp_path: Path, odd: object) -> None:
    """Others' data may hold anything."""
    assert cases(tmp_path, odd) == {}


def test_where_nobody_asks_we_do(tmp_path: Path) -> None:
    """Rows without words, and ids that are there twice, are rows too."""
    talk = {"messages": [said("user", None, id="a"), said("ai", id="a")], "questions": [None]}
    (case,) = cases(tmp_path, talk).values()

    assert case.words == QUESTION
    assert case.candidates == ["a", "a~1"]
