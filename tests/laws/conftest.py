"""Laws run without the tracer of coverage, under which they take three times as long.

The tests of the modules cover all that the laws come by.
"""

import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Take the tracer away while a law runs.

    Pytest-cov's marker ``no_cover`` does so where one process runs all tests: in those of xdist
    there is a second tracer beneath the one that it stops.
    """
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
