"""``ctxb tools``: the tools that are offered to the model, and whether their files are right."""

import json
from pathlib import Path
from typing import Annotated

import typer

from service.cli.exits import Exit
from service.cli.options import Json

tools = typer.Typer(no_args_is_help=True, help="List and check tool definitions.")

Paths = Annotated[
    list[Path] | None,
    typer.Argument(help="Files and folders to check; else those of the settings."),
]


@tools.command()
def ls(ctx: typer.Context, as_json: Json = False) -> None:
    """List the tools of the settings with their size in tokens.

    CTXB_TOOLS__PATHS='["tools"]' ctxb tools ls
    """
    from service.app import open_counter, tool_sources
    from service.cli.start import start
    from service.cli.toolbox import as_document, print_tools, read_tools

    settings = start(ctx.obj)
    found = read_tools(tool_sources(settings), open_counter(settings).count)
    if as_json:
        typer.echo(json.dumps(as_document(found), indent=2, ensure_ascii=False))
        return
    print_tools(found)


@tools.command()
def check(ctx: typer.Context, paths: Paths = None) -> None:
    """Check tool files, each by itself; exits with 3 where one is wrong.

    ctxb tools check
    ctxb tools check tools/ more.yml
    """
    from service.app import open_counter, tool_sources
    from service.cli.start import start
    from service.cli.toolbox import check_source

    settings = start(ctx.obj, tools={"paths": paths, "modules": [] if paths else None})
    count = open_counter(settings).count
    problems = [check_source(source, count) for source in tool_sources(settings)]
    if not problems:
        typer.echo("no tools in the settings (tools.paths, tools.modules)", err=True)
    if not all(problems):
        raise typer.Exit(Exit.CONFIGURATION)
