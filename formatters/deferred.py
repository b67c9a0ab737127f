"""Deferred tools: the two tools that replace all of a registry, and the hits of a search."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from formatters.model import Tool, ToolCall
from formatters.role_marks import find_tokens
from formatters.rows import as_mapping

SEARCH_NAME: Final = "search_tools"
CALL_NAME: Final = "call_tool"


def function_tool(
    name: str, description: str, properties: Mapping[str, object], required: Sequence[str] = ()
) -> Tool:
    """Return the definition of a function, by the schemas of its parameters."""
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


#: The whole ``tools`` array, which is the same in each build.
STAND_INS: Final[tuple[Tool, ...]] = (
    function_tool(
        SEARCH_NAME,
        "Find more tools by what they do. The result has their definitions.",
        {"query": {"type": "string", "description": "The tool's purpose, or its name."}},
        required=["query"],
    ),
    function_tool(
        CALL_NAME,
        "Call a tool that a search found, if it has no function here.",
        {
            "name": {"type": "string", "description": "The name of the tool."},
            "arguments": {
                "type": "object",
                "description": "Its arguments, as its definition has them.",
            },
        },
        required=["name", "arguments"],
    ),
)

NOTHING_FOUND: Final = "(No tool has these words. Search again with others.)"
#: The beginning of what it answers if no definition that it finds fits.
TOO_LONG: Final = "(No definition fits here of the tools with these words: "


def read_query(call: ToolCall) -> str | None:
    """Return what a call searches for; None if it is no search."""
    if call.name != SEARCH_NAME:
        return None
    query = as_mapping(call.arguments).get("query")
    return query if isinstance(query, str) else ""


def write_definition(tool: Tool) -> str:
    """Return the line that shows a tool in the result of a search, with its line end.

    The first characters of special tokens, broken or not, are escaped, so that the guard finds
    none in it: a backslash of the guard's would be no JSON.
    """
    function = as_mapping(tool.get("function"))
    line = json.dumps(function, ensure_ascii=False, separators=(",", ":"))
    return find_tokens().sub(lambda first: f"\\u{ord(first[0]):04x}", line) + "\n"


def read_definitions(result: str, known: Iterable[str]) -> list[str] | None:
    """Return the names of the tools in the result of a search; None if it isn't one.

    It isn't if a line is no definition of a tool whose name is among the ``known``, as when
    the result was cut.
    """
    names = [_read_name(line) for line in result.splitlines()]
    return [name for name in names if name] if {*names} <= {*known} and names else None


def _read_name(line: str) -> str | None:
    try:
        function = json.loads(line)
    except (ValueError, RecursionError):
        return None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
