import pytest

from bench.scoreboard.outcomes import Outcome
from bench.scoreboard.page import END, START, section, written

LAWS = Outcome(
    state="measured",
    figures={"builds": 7},
    began="2026-01-02 03:04",
    tree="abc1234",
    seconds=61.5,
    load=0.5,
)


def test_only_what_is_between_the_marks_is_written() -> None:
    """Writing again replaces it."""
    page = f"# Ours\n\n{START}\nold\n{END}\n\nAlso ours\n"
    once = written(page, "new\n")

    assert once == f"# Ours\n\n{START}\n\nnew\n\n{END}\n\nAlso ours\n"
    assert written(once, "new\n") == once


@pytest.mark.parametrize("page", ["# Ours\n", f"{START}\n", f"{END}\n"])
def test_a_page_without_marks_is_left_alone(page: str) -> None:
    """Nobody's words are overwritten."""
    with pytest.raises(ValueError, match="no marks"):
        written(page, "new")


def test_a_page_says_when_where_and_how() -> None:
    """Date, commit, machine, load and command are on it."""
    reported = section({"laws": LAWS}, "a machine")

    assert "Measured on a machine.\n" in reported
    runs = "| laws | measured | 2026-01-02 03:04 | abc1234 | 62 s | 0.5 |"
    assert f"{runs} `python -m bench.laws --data folder --json` |" in reported


def test_peers_are_named_as_they_were_found() -> None:
    """One that is not installed is not named."""
    peers = {"litellm": "1.2", "langchain-core": None}
    some, none = (
        Outcome(state="measured", figures={"peers": each}) for each in (peers, dict.fromkeys(peers))
    )
    assert "; peers: litellm 1.2.\n" in section({"build": some}, "")
    assert "; peers: not installed.\n" in section({"build": none}, "")


def test_an_error_stays_off_the_page() -> None:
    """It may name a path of this machine; the reason for skipping a bench is shown."""
    failed = Outcome(state="failed", reason="no such file: /secret")
    reported = section({"laws": failed, "bus": Outcome(state="skipped", reason="no server")}, "")

    assert "secret" not in reported
    assert "| laws | failed: it ended with an error |" in reported
    assert "| bus | skipped: no server |" in reported
    assert "| bus | skipped | – | – | – | – |" in reported
