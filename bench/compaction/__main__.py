"""Replay every conversation of a folder turn by turn, with compaction.

    python -m bench.compaction --data DIR [--json] [--quick]

Each conversation is built and stored message by message, every second one in the `chat` layout,
with a small budget for history, and summaries after each answer. Prints the numbers of ``builds``
and ``summaries`` and the ``tokens_saved`` by these; then what must be 0: builds with
``invalid_sequences`` or ``over_budget``, and rows that were ``lost``, from the decisions or from
the store; then the ``max_generation`` of a summary (1: of rows only), and the ``cpu_ratio``: the
CPU time of a response with summaries to that of one under `oldest_first` without, the median over
interleaved pairs. ``evidence`` is the result of `bench.summaries` for locomo's questions, if the
folder has it: by the tokens of a summary, the share of the evidence that survives in the extract,
and in the newest messages with the same number of tokens. ``--quick`` takes the first 40 turns of
every sixth conversation.
"""

import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path

from bench import summaries
from bench.compaction.replay import Found, replayed
from bench.laws.cases import Case, read_cases
from bench.report import over_data, show
from service.observe.logs import configure_logging

#: With ``--quick``: one of n conversations, and its first n turns.
QUICK_CASES = 6
QUICK_TURNS = 40


def conversations(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield of each conversation the case that has most of it."""
    longest: dict[str, Case] = {}
    for case in cases:
        name = case.name.partition("#")[0]
        if name not in longest or len(case.past) > len(longest[name].past):
            longest[name] = case
    yield from longest.values()


def run(cases: Sequence[Case], most: int | None) -> Found:
    """Replay all, on all cores; the large ones first."""
    ordered = sorted(cases, key=lambda case: case.size, reverse=True)
    found = Found()
    with ProcessPoolExecutor(
        max_workers=os.cpu_count(), initializer=configure_logging, initargs=("error",)
    ) as pool:
        for each in pool.map(partial(replayed, most=most), ordered, cycle(("tagged", "chat"))):
            found.add(each)
    return found


def figures(found: Found) -> dict[str, float]:
    """Return what is printed."""
    return {
        "builds": found.builds,
        "summaries": found.summaries,
        "tokens_saved": found.tokens_saved,
        "invalid_sequences": found.broken["invalid_sequences"],
        "over_budget": found.broken["over_budget"],
        "lost": found.lost,
        "max_generation": found.max_generation,
        "cpu_ratio": round(statistics.median(found.ratios or [0.0]), 3),
    }


def evidence(folder: Path) -> dict[str, dict[str, float]]:
    """Return which share of evidence survives, by tokens, then by what is sent of the rest."""
    if not (folder / summaries.FILE).is_file():
        return {}
    found = summaries.measure(folder)
    return {
        str(budget): {name: found[str(budget)][name]["survived"] for name in ("extract", "newest")}
        for budget in summaries.BUDGETS
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay, check and print."""
    parser = over_data(__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    cases = list(conversations(read_cases(options.data)))
    every, most = (QUICK_CASES, QUICK_TURNS) if options.quick else (1, None)
    found = run(cases[::every], most)
    for law, example in found.examples.items():
        print(f"{law}: {example}", file=sys.stderr)
    show({**figures(found), "evidence": evidence(options.data)}, as_json=options.json)


if __name__ == "__main__":
    main()
