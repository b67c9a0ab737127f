"""Measure what a page that shows live builds costs the worker's own requests.

    python -m bench.inspector [--json] [--quick] [--browser]

Starts a server and a worker, and loads the worker in pairs of windows, one with a listening page
and one without, in alternating order. `README.md` in the folder above explains the keys. The page
is a process that reads the live feed and requests lists as the real page does; with ``--browser``
there are windows with the real page in Chromium as well, which takes CPU from worker and load on
machines with few cores.
"""

import argparse
import sys

from bench.inspector.measuring import FULL, QUICK, measured
from bench.report import report
from service.aio import run
from service.observe.logs import configure_logging


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--quick", action="store_true", help="take under 30 seconds, not 2 minutes")
    parser.add_argument("--browser", action="store_true", help="open the page in Chromium too")
    options = parser.parse_args()
    configure_logging("warning")
    figures = run(measured(QUICK if options.quick else FULL, browser=options.browser))
    sys.exit(report(figures, (), as_json=options.json))


if __name__ == "__main__":
    main()
