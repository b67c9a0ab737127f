"""The part of a page that is written by the scoreboard."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from bench.scoreboard.benches import BENCHES
from bench.scoreboard.outcomes import Outcome
from bench.scoreboard.rows import found
from bench.scoreboard.table import ABSENT, HEAD, lines, markdown

START: Final = "[//]: # (scoreboard, written by make bench: from here)"
END: Final = "[//]: # (scoreboard: to here)"
RUNS: Final = ("Bench", "State", "Began, UTC", "Commit", "Took", "Load before", "Command")


def written(page: str, section: str) -> str:
    """Return a page with another text between the marks."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError("the page has no marks for the scoreboard")
    return f"{before}{START}\n\n{section.strip()}\n\n{END}{after}"


def section(outcomes: Mapping[str, Outcome], machine: str) -> str:
    """Return the table, with when and on what machine it was measured, and how to do it again."""
    # an error may name a place of this machine, and a page is for everybody
    shown = {name: replace(each, reason=_shown_reason(each)) for name, each in outcomes.items()}
    return "\n".join(
        [
            f"Measured on {machine}{_peers(shown)}.",
            "The benches ran one after the other; the load is what others wanted of the cores.",
            "",
            *markdown([HEAD, *(line.cells for line in lines(shown))]),
            "",
            "How it was measured:",
            "",
            *markdown([RUNS, *_runs(shown)]),
            "",
            "To measure it again, with a folder of conversations:",
            "",
            "```console",
            "$ make bench-env              # once: the peers",
            "$ make bench DATA=folder      # everything, and writes this section",
            "$ make bench DATA=folder ARGS='--only recall,store'",
            "$ make bench DATA=folder ARGS=--quick  # in minutes; writes nothing",
            "```",
        ]
    )


def _shown_reason(outcome: Outcome) -> str:
    return "it ended with an error" if outcome.state == "failed" else outcome.reason


def _peers(outcomes: Mapping[str, Outcome]) -> str:
    build = outcomes.get("build")
    releases = found(build.figures, ("peers",)) if build else None
    if not isinstance(releases, dict):
        return ""
    there = [f"{name} {release}" for name, release in releases.items() if release]
    return f"; peers: {', '.join(there) or 'not installed'}"


def _runs(outcomes: Mapping[str, Outcome]) -> Iterator[tuple[str, ...]]:
    for name, each in outcomes.items():
        bench = BENCHES[name]
        data = "" if bench.data is None else " --data folder"
        command = f"`python -m {bench.module}{data} {' '.join(bench.arguments(quick=False))}`"
        if each.state == "skipped":
            yield (name, each.state, *[ABSENT] * 4, command)
            continue
        took = f"{each.seconds:,.0f} s"
        yield (name, each.state, each.began, each.tree, took, f"{each.load:g}", command)
