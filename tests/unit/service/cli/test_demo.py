"""What the demo shows is in order before it runs."""

import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.cli.demo.command import print_next_steps
from service.cli.demo.requests import FULL, IMPOSSIBLE, PLAIN, SHORT_OF_MEMORY
from service.cli.demo.stage import HISTORY, OWNER, DemoError, WorkerProcess
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


@pytest.mark.parametrize("request_", [PLAIN, FULL, SHORT_OF_MEMORY, IMPOSSIBLE])
def test_the_requests_are_valid(request_: dict[str, object]) -> None:
    """Requests that are to be built have the form of the wire."""
    assert BuildRequest.model_validate(request_).owner_key == OWNER


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


def test_a_worker_that_dies_is_told_with_its_log(tmp_path: Path) -> None:
    """The demo does not wait for a worker that is gone, and shows its last words."""
    log = tmp_path / "worker.log"
    log.write_text("first\n" * 50 + "no such bus\n")
    process: Any = SimpleNamespace(returncode=5)
    with pytest.raises(DemoError, match="ended with 5:\n") as raised:
        WorkerProcess(process, log).check_running()
    assert str(raised.value).endswith("no such bus")
    assert len(str(raised.value).splitlines()) < 20
