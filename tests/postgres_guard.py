"""Run a Postgres server for exactly as long as the process that wants it lives.

A script of its own that needs the standard library alone. Its standard input says by its end that
the server is no longer wanted, or that the parent is gone, however it died.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

#: Seconds between two looks at whether server and parent are still there.
LOOK_SECONDS = 0.2
#: `prctl(2)`: the signal to get when the parent dies.
PR_SET_PDEATHSIG = 1


def main(parent: int, user: str, home: str, *command: str) -> None:
    """Run the server until it ends, or the parent does or wants it to; then its home goes too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(  # noqa: S603 - the server that the tests have found
        command,
        stdin=subprocess.DEVNULL,
        user=int(user) if user else None,
        group=int(user) if user else None,
        extra_groups=[] if user else None,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - safe: this process has a single thread
    )
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], LOOK_SECONDS)
        if os.getppid() != parent or (readable and not os.read(sys.stdin.fileno(), 1)):
            child.send_signal(signal.SIGQUIT)  # at once, without a checkpoint
            child.wait()
            shutil.rmtree(home, ignore_errors=True)
            return


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
