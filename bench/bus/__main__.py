"""What the bus costs: the whole runner on a real server, beside an echo without any service.

    python -m bench.bus [--json] [--quick]

It starts a server of its own, workers, an echo, and loads them in turn, in rounds; the figures are
medians of the rounds. `README.md` in this folder says what the keys mean. With the server, the
load and the workers on the same cores, rates say much about the machine: ratios within a round,
and CPU for an answer, say more.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from bench.bus.measuring import FULL, QUICK, measured
from service.event_loop import run
from service.logs import configure_logging


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--quick", action="store_true", help="take under 40 seconds, not 3 minutes")
    options = parser.parse_args()
    configure_logging("warning")
    result = run(measured(QUICK if options.quick else FULL))
    print(json.dumps(result) if options.json else "\n".join(_report(result)))


def _report(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for a person for each figure."""
    for key, value in result.items():
        if not isinstance(value, dict):
            yield f"{key:<42}{value}"
            continue
        for name, cell in value.items():
            yield f"{f'{key}.{name}':<42}{_cell(cell)}"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {figure}" for name, figure in value.items())
    return str(value)


if __name__ == "__main__":
    main()
