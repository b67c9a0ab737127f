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
        typer.Argument(metavar="A.json B.json", help="Two responses; - is stdin."),
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
    ctxb diff --request request.json --strategy oldest_first --strategy importance
    ctxb diff --request request.json --max-tokens 8000 --max-tokens 4000 --text

    Responses are those of `ctxb build --json` or of a worker; with --explain
    they tell why a message of history is missing. The exit code is 0 where
    both send the same messages and tools, else 7.
    """
    from pydantic import TypeAdapter

    from service.audit.compare import Comparison, compare
    from service.cli.comparisons import print_comparison
    from service.cli.pairs import two_files, two_ways
    from service.cli.start import start

    settings = start(ctx.obj)
    a, b = two_files(asked) if asked.request is None else two_ways(settings, asked)
    comparison = compare(a, b)
    if as_json:
        typer.echo(TypeAdapter(Comparison).dump_json(comparison, indent=2))
    else:
        print_comparison(comparison, text=asked.text)
    raise typer.Exit(Exit.OK if comparison.identical else Exit.DIFFERENT)
