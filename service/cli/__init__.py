"""The command line, ``ctxb``: a file a noun."""

import atexit
import gc
import os
import sys
from io import TextIOWrapper
from typing import Final

#: New objects from which on they are looked through for garbage: more than a command loads, which
#: stays until it ends. A worker has thresholds of its own once it is ready.
COLLECTED_FROM: Final = 300_000


def main() -> None:
    """Run the command that the arguments name, and exit with its code.

    A probe is asked every few seconds: it is answered before typer or anything of the service is
    imported.
    """
    _fill_in_for_closed_streams()
    if sys.argv[1:2] == ["healthcheck"]:
        from service.cli.healthcheck import probe

        sys.exit(probe(sys.argv[2:]))
    spare_collections()
    from service.cli.root import app

    for stream in (sys.stdout, sys.stderr):
        # people write in all scripts, whatever the terminal's encoding knows
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()


def _fill_in_for_closed_streams() -> None:
    """Put the null device where stdin, stdout or stderr are closed: what is written is lost.

    Else their numbers would go to the first sockets that are opened, into which a child process or
    a library might then write.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # the lowest number that is free, which is the stream's own: those before it are open
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - open to the end
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def spare_collections() -> None:
    """Spare a command garbage collections, which would take a quarter of its CPU and find nothing.

    Python collects as a process ends, too; what is frozen, as all is then, that leaves out.
    """
    gc.set_threshold(COLLECTED_FROM)
    atexit.register(gc.freeze)
