"""Commands to try after the demo; each works as it is printed."""

import shlex
import shutil
import sys
from pathlib import Path

import typer

from service.cli.demo.stage import HISTORY, TOOLS
from service.cli.tables import say


def print_next_steps(*, served: bool) -> None:
    """Print commands that work in this folder, with this installation.

    The inspector comes last, where it can't be missed, unless it was ``served`` just now.
    """
    ctxb, history = program(), shlex.quote(_near(HISTORY))
    tools = shlex.quote(f'["{_near(TOOLS)}"]')
    store = "CTXB_STORE__URL=sqlite:///ctxb.db"
    typer.echo()
    say("To try next:")
    for command in (
        f"{ctxb} build --owner me --input 'When is the ferry?' --history {history} --explain",
        f"{store} {ctxb} history import {history} --owner me",
        f"{store} {ctxb} build --owner me --input 'Who feeds the cat?' --max-tokens 4000",
        f"CTXB_TOOLS__PATHS={tools} {ctxb} tools ls",
        f"{ctxb} worker    # and then, elsewhere, the commands that it prints",
        *([] if served else [f"{ctxb} demo --serve    # opens the inspector: see it in a browser"]),
    ):
        typer.echo(f"  {command}")


def program() -> str:
    """Return how this program was called."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(_near(Path(sys.executable)))} -m service.cli"
    found = shutil.which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return called.name
    return shlex.quote(_near(called))


def _near(path: Path) -> str:
    """Return a path as seen from the working directory, where it lies below it."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
