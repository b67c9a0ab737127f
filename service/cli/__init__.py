"""The command line, ``ctxb``: a file a noun."""

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command that the arguments name, and exit with its code.

    A probe is asked every few seconds: it is answered before typer or anything of the service is
    imported.
    """
    if sys.argv[1:2] == ["healthcheck"]:
        from service.cli.healthcheck import probe

        sys.exit(probe(sys.argv[2:]))
    from service.cli.root import app

    for stream in (sys.stdout, sys.stderr):
        # people write in all scripts, whatever the terminal's encoding knows
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
