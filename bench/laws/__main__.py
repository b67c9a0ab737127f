"""Check the laws of every context over all conversations of a folder.

    python -m bench.laws --data DIR [--json] [--quick]

Builds each conversation and trajectory of DIR with every strategy, in both layouts and in all
formats, with room for history from 64 tokens to all of it, and with budgets from the protected
parts alone. Prints the number of ``builds`` and of ``refused`` ones, then how many broke a law:
``refused_wrongly``, ``over_budget``, ``invalid_sequences``, ``undecided`` and
``count_differences``. The first build to break each law is written to standard error. ``--quick``
takes every ninth combination of options of every third conversation.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from bench.laws.builds import Found, build_all
from bench.laws.cases import Case, read_cases
from bench.laws.checks import LAWS
from bench.report import over_data, show
from service.observe.logs import configure_logging

#: With ``--quick``: one of n conversations, and one of n wishes for each.
QUICK_CASES = 3
QUICK_STRIDE = 9


def run(cases: Iterable[Case], *, stride: int = 1) -> Found:
    """Build all cases, on all cores; the large ones first."""
    ordered = sorted(cases, key=lambda case: case.size, reverse=True)
    found = Found()
    with ProcessPoolExecutor(
        max_workers=os.cpu_count(), initializer=configure_logging, initargs=("warning",)
    ) as pool:
        for each in pool.map(partial(build_all, stride=stride), ordered):
            found.add_all(each)
    return found


def figures(found: Found) -> dict[str, int]:
    """Return what is printed."""
    broken = {law: found.broken[law] for law in LAWS}
    return {"builds": found.builds, "refused": found.refused, **broken}


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, check and print."""
    parser = over_data(__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    cases = list(read_cases(options.data))
    every, stride = (QUICK_CASES, QUICK_STRIDE) if options.quick else (1, 1)
    found = run(cases[::every], stride=stride)
    for law, example in found.examples.items():
        print(f"{law}: {example}", file=sys.stderr)
    show(figures(found), as_json=options.json)


if __name__ == "__main__":
    main()
