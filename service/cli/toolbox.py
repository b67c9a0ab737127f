"""Tools as people see them: their names, sizes, parameters and sources."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import typer

from formatters.model import Count, Tool
from service.budget.toolset import tools_json
from service.cli.exits import tell
from service.cli.tables import console, printable, table
from service.errors import ToolError
from service.ports.services import ServerTools, ToolSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool of the registry."""

    name: str
    #: Of its definition as JSON.
    tokens: int
    #: Names; those that are required end in ``*``.
    parameters: tuple[str, ...]
    source: str
    #: Whether its server doesn't answer, so that it is of an earlier listing.
    stale: bool = False


def read_tools(
    sources: Iterable[ToolSource], servers: Iterable[ServerTools], count: Count
) -> list[ListedTool]:
    """Read all sources as the registry does.

    Of tools with one name in files and modules the last stands, in the place of the first; a
    server's stands behind them, unless there is one of its name.

    Raises:
        ToolError: A file or module is wrong.
    """
    read = (_listed(tool, source.name, count) for source in sources for tool in source.read())
    known = {tool.name: tool for tool in read}
    for server in servers:
        for definition in server.tools:
            tool = replace(_listed(definition, server.name, count), stale=bool(server.error))
            known.setdefault(tool.name, tool)
    return list(known.values())


def print_tools(tools: Sequence[ListedTool]) -> None:
    """Print a table, the total last."""
    rows = table("Tool", "Tokens", "Parameters", "Source", numbers=["Tokens"])
    for tool in tools:
        parameters = ", ".join(tool.parameters) or "-"
        source = f"{tool.source} (stale)" if tool.stale else tool.source
        cells = (tool.name, f"{tool.tokens:,}", parameters, source)
        rows.add_row(*map(printable, cells))
    console().print(rows)
    total = sum(tool.tokens for tool in tools)
    typer.echo(f"{len(tools)} tools, {total:,} tokens; * marks required parameters")


def print_servers(servers: Iterable[ServerTools], tools: Sequence[ListedTool]) -> None:
    """Print a line on what each server's tools cost, and on why one has none."""
    for server in servers:
        its = [tool for tool in tools if tool.source == server.name]
        line = f"{server.name}: {len(its)} tools, {sum(tool.tokens for tool in its):,} tokens"
        if server.error is None:
            typer.echo(line)
        else:
            tell("away", printable(f"{line} of an earlier listing: {server.error}"))


def as_document(tools: Sequence[ListedTool]) -> list[dict[str, object]]:
    """Return the tools as JSON holds them."""
    return [asdict(tool) for tool in tools]


def check_source(source: ToolSource, count: Count) -> bool:
    """Print a line on a source, and return whether it is right."""
    try:
        tools = source.read()
    except ToolError as error:
        tell("wrong", printable(error.detail))
        return False
    typer.echo(f"ok: {source.name}: {len(tools)} tools, {count(tools_json(tools)):,} tokens")
    return True


def check_server(server: ServerTools, count: Count) -> bool:
    """Print a line on a server, and one on each thing that is wrong with what it lists."""
    for reason in (server.error and f"{server.name}: {server.error}", *server.refused):
        if reason:
            tell("wrong", printable(reason))
    if server.error is None:
        size = count(tools_json(server.tools))
        typer.echo(f"ok: {server.name}: {len(server.tools)} tools, {size:,} tokens")
    return server.error is None and not server.refused


def _listed(tool: Tool, source: str, count: Count) -> ListedTool:
    function = _mapping(tool.get("function"))
    schema = _mapping(function.get("parameters"))
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    names = _mapping(schema.get("properties"))
    return ListedTool(
        name=str(function.get("name")),
        tokens=count(tools_json([tool])),
        parameters=tuple(f"{name}*" if name in needed else name for name in names),
        source=source,
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
