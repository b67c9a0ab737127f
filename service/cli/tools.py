"""``ctxb tools``: the tools that are offered to the model, and whether their sources are valid."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from formatters.model import Count, Tool
from formatters.rows import as_mapping
from service.build.tools import tools_json
from service.cli.exits import Exit, print_error, run_until_stopped
from service.cli.options import Json
from service.cli.output import console, counted, print_json, printable, table
from service.cli.start import start
from service.connect import list_servers, open_counter, tool_sources
from service.errors import ToolError
from service.ports.services import ServerTools, ToolSource

tools = typer.Typer(no_args_is_help=True)

Paths = Annotated[
    list[Path] | None,
    typer.Argument(help="Files and folders to check; default: those of the settings."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool of the registry."""

    name: str
    #: Of its definition as JSON.
    tokens: int
    #: Names; those of required parameters end in ``*``.
    parameters: tuple[str, ...]
    source: str
    #: Whether its server doesn't answer, so that the tool is from an earlier listing.
    stale: bool = False


@tools.command()
def ls(ctx: typer.Context, as_json: Json = False) -> None:
    """List all configured tools with their size in tokens, also tools of MCP servers.

    CTXB_TOOLS__PATHS='["tools"]' ctxb tools ls

    If a server doesn't answer, and tools.snapshots has its last listing, the
    tools of that listing are printed and marked as stale.
    """
    settings = start(ctx.obj)
    servers = run_until_stopped(list_servers(settings))
    listed = read_tools(tool_sources(settings), servers, open_counter(settings).count)
    if as_json:
        print_json(listed)
        return
    rows = (
        (
            tool.name,
            tool.tokens,
            ", ".join(tool.parameters) or "-",
            f"{tool.source} (stale)" if tool.stale else tool.source,
        )
        for tool in listed
    )
    console().print(table("Tool", "Tokens", "Parameters", "Source", rows=rows, numbers=["Tokens"]))
    total = sum(tool.tokens for tool in listed)
    typer.echo(f"{_size(len(listed), total)}; * marks required parameters")
    print_servers(servers, listed)


@tools.command()
def check(ctx: typer.Context, paths: Paths = None) -> None:
    """Check each tool file and server; the exit code is 3 if one is invalid.

    ctxb tools check
    ctxb tools check tools/ more.yml

    A server is invalid if it doesn't answer, or lists a tool that can't be offered.
    A file, module or server without tools is a warning.
    """
    only: list[object] | None = [] if paths else None
    settings = start(ctx.obj, tools={"paths": paths, "modules": only, "mcp": only})
    count = open_counter(settings).count
    valid = [check_server(read_source(source), count) for source in tool_sources(settings)]
    valid += [check_server(server, count) for server in run_until_stopped(list_servers(settings))]
    if not valid:
        typer.echo("no tools in the settings (tools.paths, tools.modules, tools.mcp)", err=True)
    if not all(valid):
        raise typer.Exit(Exit.CONFIGURATION)


def read_tools(
    sources: Iterable[ToolSource], servers: Iterable[ServerTools], count: Count
) -> list[ListedTool]:
    """Read all sources as the registry does.

    Of tools with the same name in files and modules the last one counts, at the position of the
    first. The tools of servers follow, without those whose name is taken.

    Raises:
        ToolError: A file or module is invalid.
    """
    read = (_listed(tool, source.name, count) for source in sources for tool in source.read())
    by_name = {tool.name: tool for tool in read}
    for server in servers:
        for definition in server.tools:
            tool = replace(_listed(definition, server.name, count), stale=bool(server.error))
            by_name.setdefault(tool.name, tool)
    return list(by_name.values())


def print_servers(servers: Iterable[ServerTools], listed: Sequence[ListedTool]) -> None:
    """Print a line per server with the size of its tools, and why it is away if it is."""
    for server in servers:
        own = [tool for tool in listed if tool.source == server.name]
        line = f"{server.name}: {_size(len(own), sum(tool.tokens for tool in own))}"
        if server.error is None:
            typer.echo(line)
        else:
            print_error("away", printable(f"{line} of an earlier listing: {server.error}"))


def read_source(source: ToolSource) -> ServerTools:
    """Read a file or module, as if a server listed its tools."""
    try:
        return ServerTools(source.name, source.read())
    except ToolError as error:
        return ServerTools(source.name, refused=[error.detail])


def check_server(server: ServerTools, count: Count) -> bool:
    """Print a line for a server and for each problem with it, and return whether it is valid."""
    problems = server.refused if server.error is None else [f"{server.name}: {server.error}"]
    for problem in problems:
        print_error("invalid", printable(problem))
    if server.tools and server.error is None:
        size = count(tools_json(server.tools))
        typer.echo(f"ok: {server.name}: {_size(len(server.tools), size)}")
    elif not problems:
        hint = "a module's are its dicts whose names end in _TOOL"
        print_error("warning", printable(f"{server.name}: no tools found; {hint}"))
    return not problems


def _size(tools: int, tokens: int) -> str:
    return f"{counted(tools, 'tool')}, {counted(tokens, 'token')}"


def _listed(tool: Tool, source: str, count: Count) -> ListedTool:
    function = as_mapping(tool.get("function"))
    schema = as_mapping(function.get("parameters"))
    required = schema.get("required")
    starred = set(required) if isinstance(required, list) else set()
    names = as_mapping(schema.get("properties"))
    return ListedTool(
        name=str(function.get("name")),
        tokens=count(tools_json([tool])),
        parameters=tuple(f"{name}*" if name in starred else name for name in names),
        source=source,
    )
