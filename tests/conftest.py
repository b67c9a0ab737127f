"""What every test shares."""

import atexit
import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from formatters.model import Count
from service.adapters.tokens.tokenizers import TiktokenCounter
from tests.support import quiet_logs

# shared machines stall for longer than any deadline that would mean something
settings.register_profile("quick", deadline=None, max_examples=100)
settings.register_profile(
    "thorough", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-randomly shuffle, and seed nothing anew: no test draws but by a seed it gives."""
    config.option.randomly_reset_seed = False


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

# tests of logs configure what they look at, and call this again behind them
quiet_logs()
