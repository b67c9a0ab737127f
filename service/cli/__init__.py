"""The command line, ``ctxb``: one file per noun."""

import atexit
import gc
import os
import sys
from io import TextIOWrapper
from typing import Final

#: The garbage collector's threshold: more objects than a command creates by loading modules. A
#: worker sets thresholds of its own once it is ready.
GC_THRESHOLD: Final = 300_000


def main() -> None:
    """Run the command that the arguments name, and exit with its code.

    A health probe runs every few seconds, so it is answered before typer or the rest of the service
    is imported.
    """
    _replace_closed_streams()
    if sys.argv[1:2] == ["healthcheck"]:
        from service.cli.healthcheck import probe

        sys.exit(probe(sys.argv[2:]))
    # collections take a quarter of a short command's CPU and find nothing; Python also collects as
    # a process ends, where freezing all objects first leaves nothing to look at
    gc.set_threshold(GC_THRESHOLD)
    atexit.register(gc.freeze)
    from service.cli.root import app

    for stream in (sys.stdout, sys.stderr):
        # people's words may have characters that the terminal's encoding lacks
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()


def _replace_closed_streams() -> None:
    """Open the null device for each of stdin, stdout and stderr that is closed.

    Otherwise the first sockets would get their file descriptors, and a child process or a library
    that writes to stderr would write into a socket.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # gets the lowest free descriptor, which is the stream's: those below it are open
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - open to the end
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
