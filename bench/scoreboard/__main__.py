"""Run all benchmarks one after the other, and collect them in one table with their baselines.

    python -m bench.scoreboard [--data DIR] [--peers PYTHON] [--only recall,store] [--quick]

Each runs in its own process, and never two at a time. A benchmark that can't run here is skipped,
with the reason. A full run keeps the output of each, and writes `bench/results.md` from the
newest; ``--quick`` takes minutes, and writes nothing. The exit code is 1 if a benchmark failed or a
guarantee is broken.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.scoreboard import page
from bench.scoreboard.benches import BENCHES, Bench
from bench.scoreboard.machine import ROOT, described
from bench.scoreboard.outcomes import Outcome, keep, kept
from bench.scoreboard.running import Place, outcome
from bench.scoreboard.table import HEAD, lines, text


@dataclass(frozen=True, slots=True)
class Files:
    """What a full run writes."""

    #: A folder with a file a bench, of what it printed last.
    results: Path
    page: Path


FILES: Final = Files(ROOT / "build" / "scoreboard", ROOT / "bench" / "results.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of conversations")
    parser.add_argument("--peers", help="the Python that has the peers")
    parser.add_argument("--only", type=_names, default=list(BENCHES), help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    # a shell that starts this in the background has it ignore interrupts, and benches do so too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    data = options.data.resolve() if options.data else None
    place = Place(python=sys.executable, peers=options.peers, data=data, quick=options.quick)
    return board({name: BENCHES[name] for name in options.only}, place, FILES)


def board(benches: Mapping[str, Bench], place: Place, files: Files) -> int:
    """Run some benches, print the table and return the exit code."""
    outcomes = {}
    for name, bench in benches.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        outcomes[name] = asyncio.run(outcome(bench, place))
        if not place.quick and outcomes[name].state != "skipped":
            keep(files.results, name, outcomes[name])
    shown = list(lines(outcomes))
    print("\n".join(text([HEAD, *(line.cells for line in shown)])))
    if not place.quick:
        _write(_with_kept(outcomes, files.results), files.page)
    failed = any(each.state == "failed" for each in outcomes.values())
    return int(failed or any(line.broken for line in shown))


def _with_kept(outcomes: Mapping[str, Outcome], folder: Path) -> dict[str, Outcome]:
    """Return the newest of every bench; what was not run now is as it was the last time."""
    never = Outcome(state="skipped", reason="it was not requested")
    reported = {}
    for name in BENCHES:
        now = outcomes.get(name, never)
        reported[name] = (kept(folder, name) or now) if now.state == "skipped" else now
    return reported


def _write(outcomes: Mapping[str, Outcome], path: Path) -> None:
    section = page.section(outcomes, described())
    path.write_text(page.written(path.read_text(encoding="utf-8"), section), encoding="utf-8")


def _names(words: str) -> list[str]:
    names = words.split(",")
    if unknown := set(names) - set(BENCHES):
        raise argparse.ArgumentTypeError(f"no such bench: {', '.join(sorted(unknown))}")
    return names


if __name__ == "__main__":
    sys.exit(main())
