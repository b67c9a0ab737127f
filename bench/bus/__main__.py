"""What the bus costs: the whole runner on a real server, beside an echo without any service.

    python -m bench.bus [--json] [--quick]

It starts a server of its own, workers, an echo, and loads them in turn, in rounds; the figures are
medians of the rounds. `README.md` in the folder above says what the keys mean. With the server,
the load and the workers on the same cores, rates say much about the machine: ratios within a round,
and CPU for an answer, say more.
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
