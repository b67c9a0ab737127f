"""What every test shares."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from formatters.model import Count
from service.adapters.tokens.tokenizers import TiktokenCounter
from tests.support import quiet_logs

# shared machines stall for longer than any deadline that would mean something; in CI, where a
# commit must always have the same result, examples depend on the test alone
settings.register_profile("quick", deadline=None, max_examples=10, derandomize="CI" in os.environ)
settings.register_profile(
    "thorough",
    parent=settings.get_profile("quick"),
    max_examples=int(os.environ.get("EXAMPLES") or 2_000),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-randomly shuffle without seeds: tests draw only with seeds of their own."""
    config.option.randomly_reset_seed = False


#: Where tests run without the tracer of coverage, under which the laws take three times as long:
#: the tests of units and integration cover all that these come by.
UNTRACED = [Path(__file__).with_name(name) for name in ("browser", "e2e", "laws")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Take the tracer away while such a test runs.

    Pytest-cov's marker ``no_cover`` does so where one process runs all tests: in those of xdist
    there is a second tracer beneath the one that it stops.
    """
    if not any(map(item.path.is_relative_to, UNTRACED)):
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look through nothing for garbage that stays to the end: modules, and the tests themselves."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


# nor look for garbage where the process ends anyway
atexit.register(gc.freeze)


@pytest.fixture(scope="session")
def count() -> Count:
    """Count the tokens of a text as tiktoken's ``o200k_base`` does."""
    return TiktokenCounter("o200k_base").count


# a shell that starts tests in the background has them ignore Ctrl-C, and all that they start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# spans of workers that tests open here go nowhere, unless a test says so
for name in [name for name in os.environ if name.startswith("OTEL_")]:
    del os.environ[name]

# tests of logs configure what they look at, and call this again after them
quiet_logs()
