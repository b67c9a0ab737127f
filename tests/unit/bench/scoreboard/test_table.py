from typing import Any

import pytest

from bench.scoreboard.outcomes import Outcome
from bench.scoreboard.table import HEAD, Line, lines, markdown, shown, text

#: The output of benches, in small.
RECALL: dict[str, Any] = {
    "locomo/relevance/2000": {
        "recall": 0.8512,
        "p50_ms": 30.5,
        "interval": [0.0384, 0.09],
        "best_baseline": "bm25_both",
        "minus_best": 0.06,
    },
    "locomo/newest/2000": {"recall": 0.0601},
    "locomo/bm25/2000": {"recall": 0.7},
}
LAWS = {"builds": 12345, "refused": 7, "refused_wrongly": 0, "over_budget": 2}
CACHE = {
    "chat": {"history_prefix": 0.93, "newest_present": 1.0},
    "sliding_window": {"chat": {"history_prefix": 0.41}},
}


def measured(figures: dict[str, Any]) -> Outcome:
    """Return what a bench printed."""
    return Outcome(state="measured", figures=figures)


def by_name(name: str, outcome: Outcome) -> dict[str, Line]:
    """Return the lines of a bench, by their content."""
    return {line.what: line for line in lines({name: outcome})}


def test_baselines_stand_next_to_a_figure() -> None:
    """One that was not measured, as a peer that is not installed, is a dash."""
    line = by_name("recall", measured(RECALL))["evidence kept by `relevance`, locomo, 2,000 tokens"]

    assert line.ours == "0.8512"
    assert line.beside.startswith("newest first 0.0601, BM25 0.7, BM25 over passages –")
    assert "trim_messages –" in line.beside
    assert (line.aim, line.met) == ("≥ 0.86", False)


def test_a_difference_names_the_best_of_the_others() -> None:
    """Its aim is met where all of the interval is above 0."""
    reported = by_name("recall", measured(RECALL))
    line = reported["more than the best of the others, low end of 95 %, locomo, 2,000 tokens"]

    assert line.cells[2:] == ("0.0384", "best bm25_both, mean 0.06", "> 0", "yes")


def test_a_layout_is_next_to_the_sliding_window() -> None:
    """The figures of the other layout are dashes, and an aim without a figure is neither met."""
    reported = by_name("cache", measured(CACHE))
    cells = reported["recent history as in the build before, `chat`"].cells
    assert cells[2:] == ("0.93", "sliding_window 0.41, oldest_first –", "≥ 0.9", "yes")
    cells = reported["recent history as in the build before, `tagged`"].cells
    assert cells[2:] == ("–", "sliding_window –, oldest_first –", "≥ 0.9", "")


def test_stores_are_shown_by_kind() -> None:
    """A store that was not there is a dash."""
    store = {
        "build_ms": {"sqlite": {"1000": 6.9, "1000000": 7.1}},
        "growth_sqlite": 1.03,
        "growth_postgres": None,
        "relevance": {"growth_sqlite": 4.5},
    }
    reported = by_name("store", measured(store))
    line = reported["build, longest history over the shortest, SQLite"]
    assert line.cells[2:4] == ("1.03", "ms over 1,000 6.9, ms over 1,000,000 7.1")
    assert reported["build, longest history over the shortest, Postgres"].ours == "–"
    line = reported["build with `relevance`, longest history over the shortest, SQLite"]
    assert line.cells[2:] == ("4.5", "ms over 1,000 –, ms over 1,000,000 –", "< 4", "no")


def test_a_promise_that_is_broken_is_marked() -> None:
    """An aim that is missed is no broken promise."""
    reported = by_name("laws", measured(LAWS))
    assert reported["builds"].ours == "12,345"
    assert reported["over budget"].broken
    assert not reported["refused wrongly"].broken
    assert not any(line.broken for line in lines({"recall": measured(RECALL)}))


@pytest.mark.parametrize("state", ["skipped", "failed"])
def test_a_bench_without_figures_has_one_line(state: Any) -> None:
    """It says why there are none."""
    (line,) = lines({"laws": Outcome(state=state, reason="no data")})
    assert line.cells == ("laws", f"{state}: no data", "", "", "", "")


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        (1_000_000, "1,000,000"),
        (163.42, "163.4"),
        (26501.2, "26,501"),
        (0.89964, "0.8996"),
        ("bm25", "bm25"),
    ],
)
def test_figures_are_short(figure: object, words: str) -> None:
    """Four digits, and a comma a thousand."""
    assert shown(figure) == words


def test_columns_are_aligned_for_people() -> None:
    """Each column is as wide as its widest cell."""
    assert list(text([("a", "b"), ("long", "c")])) == ["a     b", "long  c"]


def test_a_table_of_markdown_has_its_head() -> None:
    """Empty cells are kept."""
    reported = list(markdown([HEAD, Line("laws", "builds", "7").cells]))
    assert reported[1] == "| --- | --- | --- | --- | --- | --- |"
    assert reported[2] == "| laws | builds | 7 | | | |"
