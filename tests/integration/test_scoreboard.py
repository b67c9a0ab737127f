import sys
from pathlib import Path

import pytest

from bench.scoreboard.__main__ import Files, board
from bench.scoreboard.benches import BENCHES, Bench
from bench.scoreboard.outcomes import Outcome, keep, kept
from bench.scoreboard.page import END, START
from bench.scoreboard.running import Place, outcome

HERE = Place(python=sys.executable)


def small(wish: str, minutes: float = 1) -> Bench:
    """Return a bench that a test controls."""
    return Bench(module="tests.integration.small_bench", full=wish, quick=wish, minutes=minutes)


async def test_figures_are_what_a_bench_prints() -> None:
    """With the time and the commit of the run."""
    found = await outcome(small("well"), HERE)

    assert found.state == "measured"
    assert found.figures["builds"] == 7
    assert found.began
    assert found.seconds > 0


@pytest.mark.parametrize(
    ("wish", "reason", "builds"), [("fail", "second line", None), ("promise", "broken: 1 lost", 7)]
)
async def test_a_bench_that_fails_says_why(wish: str, reason: str, builds: int | None) -> None:
    """Its last line is the reason; figures that it printed before are kept."""
    found = await outcome(small(wish), HERE)

    assert (found.state, found.reason) == ("failed", reason)
    assert found.figures.get("builds") == builds


async def test_a_bench_that_hangs_is_ended() -> None:
    """It has failed once its time is over."""
    found = await outcome(small("hang", minutes=0.01), HERE)

    assert (found.state, found.reason) == ("failed", "was not done within 0.01 minutes")


@pytest.mark.parametrize(("wish", "code"), [("well", 0), ("law", 1), ("promise", 1), ("fail", 1)])
def test_the_exit_code_reports_what_is_broken(wish: str, code: int, tmp_path: Path) -> None:
    """A bench that failed and a promise that is broken both end with 1; the page is written."""
    files = Files(tmp_path / "results", tmp_path / "page.md")
    files.page.write_text(f"# Ours\n{START}\n{END}\n")

    assert board({"laws": small(wish)}, HERE, files) == code
    stored = kept(files.results, "laws")
    assert isinstance(stored, Outcome)
    assert stored.state in files.page.read_text()


def test_what_was_measured_before_stays_on_the_page(tmp_path: Path) -> None:
    """A bench that can't run now is shown as it was the last time; one that never ran says so."""
    files = Files(tmp_path / "results", tmp_path / "page.md")
    files.page.write_text(f"{START}\n{END}\n")
    before = Outcome(state="measured", figures={"builds": 4321}, began="2026-01-02 03:04")
    keep(files.results, "laws", before)

    assert board({"laws": BENCHES["laws"]}, HERE, files) == 0
    assert kept(files.results, "laws") == before
    reported = files.page.read_text()
    assert "| laws | builds | 4,321 |" in reported
    assert "| bus | skipped: it was not requested |" in reported
