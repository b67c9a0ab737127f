"""What every command begins and ends with."""

import subprocess
import sys

#: Registered first, and so run last.
SCRIPT = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0]))
from service.cli import GC_THRESHOLD, main
print(GC_THRESHOLD)
sys.argv = ["ctxb", "--version"]
main()
"""


def test_what_a_command_loads_is_not_looked_through_for_garbage() -> None:
    """While it loads there is no collection, and at its end all is left out of the last ones."""
    ran = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    threshold, version, at_the_end = ran.stdout.splitlines()
    assert version.startswith("ctxb ")
    assert at_the_end == f"True {threshold}"
