import sys
from pathlib import Path

import pytest

from bench.scoreboard.__main__ import Files, board, main
from bench.scoreboard.benches import BENCHES
from bench.scoreboard.running import Place, command, missing

LAWS = {"laws": BENCHES["laws"]}


def test_a_bench_without_its_data_is_skipped(tmp_path: Path) -> None:
    """The reason names what is missing, and no place of this machine."""
    nowhere, empty = Place(python=""), Place(python="", data=tmp_path)
    assert missing(BENCHES["hostile"], nowhere) == "no folder of data was named"
    assert missing(BENCHES["hostile"], empty) == "the folder of data has no injections"
    for name in ("injections", "locomo"):
        (tmp_path / f"{name}.jsonl.gz").touch()
    assert missing(BENCHES["hostile"], empty) == ""


def test_peers_are_measured_where_they_are_installed() -> None:
    """Other benches run in our own Python."""
    place = Place(python="ours", peers="theirs", data=Path("folder"))
    assert command(BENCHES["build"], place) == ["theirs", "-m", "bench.build", "--json"]
    laws = ["ours", "-m", "bench.laws", "--data", "folder", "--json"]
    assert command(BENCHES["laws"], place) == laws
    assert command(BENCHES["build"], Place(python="ours"))[0] == "ours"


def test_a_quick_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it skips, and a skipped bench is no failure."""
    files = Files(tmp_path / "results", tmp_path / "page.md")

    assert board(LAWS, Place(python=sys.executable, quick=True), files) == 0
    assert "skipped: no folder of data was named" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_bench_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Its name is reported."""
    with pytest.raises(SystemExit):
        main(["--only", "laws,speed"])
    assert "no such bench: speed" in capsys.readouterr().err
