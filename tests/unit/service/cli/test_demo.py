"""What the demo shows is in order before it runs."""

import shlex
import sys

import pytest

from service.cli.demo.command import print_next_steps
from service.cli.demo.stage import HISTORY, OWNER, REQUESTS
from service.cli.history_files import read_history
from service.wire.request import BuildRequest


def test_the_history_is_whole() -> None:
    """The demo's history reads without a problem, and every call in it has its result."""
    found = read_history(HISTORY.read_bytes(), owner_key=OWNER)
    assert (found.problems, found.instructions) == ([], 0)
    assert len(found.rows) >= 60
    calls = [call["id"] for row in found.rows for call in row["metadata"].get("tool_calls", [])]
    results = [row["metadata"].get("tool_call_id") for row in found.rows if row["role"] == "TOOL"]
    assert calls == results
    assert calls


@pytest.mark.parametrize("name", ["question", "run", "short_of_memory", "impossible"])
def test_the_requests_are_valid(name: str) -> None:
    """Requests that are to be built have the form of the wire."""
    assert BuildRequest.model_validate(REQUESTS[name]).owner_key == OWNER


def test_the_next_steps_name_files_that_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands are printed so that a shell reads them as they are meant."""
    monkeypatch.setattr(sys, "argv", ["/no where/ctxb", "demo"])
    print_next_steps(served=False)
    build = next(line for line in capsys.readouterr().out.splitlines() if "--explain" in line)
    words = shlex.split(build)
    assert words[:2] == ["/no where/ctxb", "build"]
    assert words[words.index("--history") + 1] == str(HISTORY)
