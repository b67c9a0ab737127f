"""Tools as people see them: their names, sizes, parameters and sources."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import typer

from formatters.model import Count, Tool
from service.budget.toolset import tools_json
from service.cli.exits import tell
from service.cli.tables import console, printable, table
from service.errors import ToolError
from service.ports import ToolSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool of the registry."""

    name: str
    #: Of its definition as JSON.
    tokens: int
    #: Names; those that are required end in ``*``.
    parameters: tuple[str, ...]
    source: str


def read_tools(sources: Iterable[ToolSource], count: Count) -> list[ListedTool]:
    """Read all sources; of tools with one name the last stands, in the place of the first.

    Raises:
        ToolError: A source is wrong.
    """
    listed = (_listed(tool, source.name, count) for source in sources for tool in source.read())
    return list({tool.name: tool for tool in listed}.values())


def print_tools(tools: Sequence[ListedTool]) -> None:
    """Print a table, the total last."""
    rows = table("Tool", "Tokens", "Parameters", "Source", numbers=["Tokens"])
    for tool in tools:
        parameters = ", ".join(tool.parameters) or "-"
        cells = (tool.name, f"{tool.tokens:,}", parameters, tool.source)
        rows.add_row(*map(printable, cells))
    console().print(rows)
    total = sum(tool.tokens for tool in tools)
    typer.echo(f"{len(tools)} tools, {total:,} tokens; * marks required parameters")


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
