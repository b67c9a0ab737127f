"""What a page that shows a worker's builds as they come costs the worker's own requests.

    python -m bench.inspector [--json] [--quick] [--browser]

It starts a server and a worker of its own, and loads the worker in pairs of windows, one with a
page that listens and one without, in turn one or the other first. `README.md` in the folder above
says what the keys mean. The page is a process that reads the live feed and asks for lists as a page
does; with ``--browser`` there are windows with the page itself in Chromium as well, which on few
cores takes these from worker and load.
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
