"""What the kernel reports of processes."""

import os
from pathlib import Path

import pytest

from bench.processes import cpu_seconds, usage


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_the_kernel_reports_a_process() -> None:
    """CPU only grows, and memory is that of a Python process at least."""
    before = cpu_seconds(os.getpid())
    assert cpu_seconds(os.getpid()) >= before > 0
    held = usage(os.getpid())
    assert held.peak >= held.rss > 5_000_000
    assert held.files >= 2
