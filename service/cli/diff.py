"""``ctxb diff``: two builds side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from service.cli.completion import models, strategies
from service.cli.exits import Exit
from service.cli.options import Json, takes

TWICE: Final = "Give it twice to compare two, once to use it for both."


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """What the command line says about the builds to compare."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A B", help="Two build ids, or two files with responses; - is stdin."
        ),
    ] = None
    request: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A request to build twice; - is stdin."),
    ] = None
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", autocompletion=strategies, help=TWICE)
    ] = None
    max_tokens: Annotated[list[int] | None, typer.Option(help=TWICE)] = None
    memory_tokens: Annotated[list[int] | None, typer.Option(help=TWICE)] = None
    model: Annotated[list[str] | None, typer.Option(autocompletion=models, help=TWICE)] = None
    text: Annotated[bool, typer.Option("--text", help="Show the lines that differ.")] = False


@takes(DiffOptions)
def diff(ctx: typer.Context, *, asked: DiffOptions, as_json: Json = False) -> None:
    """Compare two builds, or one request built in two ways.

    ctxb diff before.json after.json
    ctxb diff bld_5d4b8ca19cb01f1f52f2390e46b46de4 bld_91f0e4b2c3a45d6978f0a1b2c3d4e5f6
    ctxb diff --request request.json --strategy oldest_first --strategy importance
    ctxb diff --request request.json --max-tokens 8000 --max-tokens 4000 --text

    Responses are those of `ctxb build --json` or of a worker; with --explain
    they say why a message of history is missing. The reports of builds are
    read from the bus of the settings. The exit code is 0 if both send the
    same messages and tools, else 7, or 8 if a build has no report.
    """
    from pydantic import TypeAdapter

    from service.audit.compare import Comparison, compare
    from service.cli.comparisons import print_comparison
    from service.cli.pairs import two_builds, two_ways
    from service.cli.start import start

    settings = start(ctx.obj)
    a, b = (two_builds if asked.request is None else two_ways)(settings, asked)
    comparison = compare(a, b)
    if as_json:
        typer.echo(TypeAdapter(Comparison).dump_json(comparison, indent=2))
    else:
        print_comparison(comparison, text=asked.text)
    raise typer.Exit(Exit.OK if comparison.identical else Exit.DIFFERENT)
