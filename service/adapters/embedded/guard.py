"""Run a bus server for exactly as long as its parent process lives.

This script needs only the standard library: ``python -I -S`` starts it in a few hundredths of a
second. Its standard input holds the server's configuration up to an empty line; the end of the
input means that the parent is gone, however it died.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile

#: Seconds between checks that the server and the parent are still running.
CHECK_SECONDS = 0.5
#: Seconds that the server may take to exit.
STOP_SECONDS = 5.0
#: `prctl(2)`: the signal to receive when the parent dies.
PR_SET_PDEATHSIG = 1
#: Bytes of the server's log to show when it fails.
LOG_TAIL = 2000


def main(parent: int, server: str) -> int:
    """Run the server until it ends or the parent does; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    configuration = b"".join(iter(sys.stdin.buffer.readline, b"\n"))
    with tempfile.TemporaryDirectory(prefix="ctxb-bus-") as home, tempfile.TemporaryFile() as log:
        child = subprocess.Popen(  # noqa: S603 - the program that `find_server` found
            [server, "-"],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - safe: this process has a single thread
        )
        try:
            _feed(child, configuration)
            _wait(child, parent)
        finally:
            _stop(child)
        return _report(child, log.fileno())


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _feed(child: subprocess.Popen[bytes], configuration: bytes) -> None:
    # a server that refuses to start closes its end early; its log says why
    with contextlib.suppress(BrokenPipeError), child.stdin or contextlib.nullcontext() as pipe:
        if pipe is not None:
            pipe.write(configuration)


def _wait(child: subprocess.Popen[bytes], parent: int) -> None:
    """Wait until the server has exited, or the parent has, or closes our input."""
    while child.poll() is None and os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], CHECK_SECONDS)
        if readable and not os.read(sys.stdin.fileno(), 1):
            return


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _report(child: subprocess.Popen[bytes], log: int) -> int:
    if child.returncode <= 0:
        return 0
    size = os.fstat(log).st_size
    sys.stderr.buffer.write(os.pread(log, LOG_TAIL, max(0, size - LOG_TAIL)))
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
