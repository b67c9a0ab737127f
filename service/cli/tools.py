"""``ctxb tools``: the tools that are offered to the model, and whether their files are right."""

import json
from pathlib import Path
from typing import Annotated

import typer

from service.cli.ending import until_told
from service.cli.exits import Exit
from service.cli.options import Json

tools = typer.Typer(no_args_is_help=True, help="List and check tool definitions.")

Paths = Annotated[
    list[Path] | None,
    typer.Argument(help="Files and folders to check; else those of the settings."),
]


@tools.command()
def ls(ctx: typer.Context, as_json: Json = False) -> None:
    """List the tools of the settings with their size in tokens; servers are asked for theirs.

    CTXB_TOOLS__PATHS='["tools"]' ctxb tools ls

    The tools of a server that does not answer are those it listed before, where these are kept
    (tools.snapshots); they are marked as stale.
    """
    from service.cli.start import start
    from service.cli.toolbox import as_document, print_servers, print_tools, read_tools
    from service.connect import list_servers, open_counter, tool_sources

    settings = start(ctx.obj)
    servers = until_told(list_servers(settings))
    found = read_tools(tool_sources(settings), servers, open_counter(settings).count)
    if as_json:
        typer.echo(json.dumps(as_document(found), indent=2, ensure_ascii=False))
        return
    print_tools(found)
    print_servers(servers, found)


@tools.command()
def check(ctx: typer.Context, paths: Paths = None) -> None:
    """Check tool files and servers, each by itself; exits with 3 where one is wrong.

    ctxb tools check
    ctxb tools check tools/ more.yml

    A server is wrong if it does not answer, or lists a tool that can't be offered.
    """
    from service.cli.start import start
    from service.cli.toolbox import check_server, check_source
    from service.connect import list_servers, open_counter, tool_sources

    only: list[object] | None = [] if paths else None
    settings = start(ctx.obj, tools={"paths": paths, "modules": only, "mcp": only})
    count = open_counter(settings).count
    right = [check_source(source, count) for source in tool_sources(settings)]
    right += [check_server(server, count) for server in until_told(list_servers(settings))]
    if not right:
        typer.echo("no tools in the settings (tools.paths, tools.modules, tools.mcp)", err=True)
    if not all(right):
        raise typer.Exit(Exit.CONFIGURATION)
