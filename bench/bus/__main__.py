"""Measure the cost of the bus: the whole runner on a real server, against an echo.

    python -m bench.bus [--json] [--quick]

Starts a server, workers and an echo, and loads them in turn, in rounds; the figures are medians of
the rounds. `README.md` in the folder above explains the keys. The server, the load and the workers
share the same cores, so rates depend on the machine: compare the ratios within a round, and the CPU
per answer.
"""

import argparse
import sys

from bench.bus.measuring import FULL, QUICK, measured
from bench.report import report
from service.aio import run
from service.observe.logs import configure_logging


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--quick", action="store_true", help="take under 40 seconds, not 3 minutes")
    options = parser.parse_args()
    configure_logging("warning")
    figures = run(measured(QUICK if options.quick else FULL))
    sys.exit(report(figures, (), as_json=options.json))


if __name__ == "__main__":
    main()
