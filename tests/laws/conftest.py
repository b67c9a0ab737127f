"""Laws run without the tracer of coverage, under which they take three times as long.

The tests of the modules cover all that the laws come by.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the laws for pytest-cov."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("no_cover")
