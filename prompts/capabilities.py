"""The `[CAPABILITIES]` block: the tools of the conversation, one entry per tool."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from formatters.guard import Guard, one_line
from formatters.model import Block, Entry, Facts, Tag, Tool, TrimPolicy
from formatters.rows import as_mapping, is_list, read_text, truncate

HEADER: Final = f"[{Tag.CAPABILITIES}]\nAvailable tools in this conversation:\n\n"
NO_TOOLS: Final = "(No tools available)"
NO_NAME: Final = "unknown"
NO_DESCRIPTION: Final = "No description"
ANY_TYPE: Final = "any"
#: The heading of the lines that say what tools a search finds.
DEFERRED: Final = "### More tools, to be found by a search"
#: The most deferred tools that have a line each; of more, each server has a line.
FEW_TOOLS: Final = 20
#: The names in the line of a server, and of the tools without one.
NAMES_OF_SERVER: Final = 8
#: The characters of the description in the line of a tool.
BRIEF_CHARS: Final = 100
#: Separates the name of a server from that of its tool.
SERVER_SEPARATOR: Final = "__"

#: The keys of a tool's parameters in the forms of OpenAI, Anthropic and MCP.
_SCHEMA_KEYS: Final = ("parameters", "input_schema", "inputSchema")

#: Keywords of JSON Schema whose value is a list of alternatives.
_ALTERNATIVES: Final = ("anyOf", "oneOf")

#: How many levels of alternatives in alternatives are read; a schema may contain itself.
_DEPTH: Final = 4

#: JSON Schema's names of types, for a ``const`` or ``enum`` without ``type``.
_JSON_TYPES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
    dict: "object",
    list: "array",
}


def capabilities(facts: Facts) -> Block:
    """Show the tools in order, as far as ``facts.capabilities`` says; under a guard."""
    if facts.tools_block is not None:
        return facts.tools_block
    if facts.capabilities == "none":
        return Block(tag=Tag.CAPABILITIES, entries=(), gives_way=TrimPolicy.BY_DETAIL)
    entries = (_entry(tool, facts.guard) for tool in facts.tools)
    if facts.capabilities == "names":
        entries = (Entry(text=entry.shorter[-1]) for entry in entries)
    directory = [_directory(facts.deferred, facts.guard)] if facts.deferred else []
    return Block(
        tag=Tag.CAPABILITIES,
        header=HEADER,
        entries=(*entries, *directory),
        placeholder=NO_TOOLS,
        gives_way=TrimPolicy.BY_DETAIL,
        additive=True,
    )


def _directory(deferred: Sequence[Tool], guard: Guard) -> Entry:
    """Return the entry with a line for each deferred tool, or for each server if there are many."""
    few = len(deferred) <= FEW_TOOLS
    lines = _list_tools(deferred) if few else _list_servers(deferred)
    text = "".join(f"{guard.shatter(f'- {line}')}\n" for line in lines)
    return Entry(text=f"{DEFERRED}\n{text}", shorter=(DEFERRED,))


def _list_tools(tools: Sequence[Tool]) -> Iterator[str]:
    for tool in tools:
        about = one_line(_string(_function(tool).get("description")))
        brief = truncate(about, BRIEF_CHARS)
        yield f"{_name(tool)}: {brief}" if brief else _name(tool)


def _list_servers(tools: Sequence[Tool]) -> Iterator[str]:
    """Yield a line for each server, in the order of its first tool; the last for other tools."""
    servers: dict[str, list[str]] = {}
    for name in map(_name, tools):
        server, separator, own = name.partition(SERVER_SEPARATOR)
        servers.setdefault(server if separator else "", []).append(own or name)
    for server in sorted(servers, key=lambda name: not name):
        names = servers[server]
        more = ", …" if len(names) > NAMES_OF_SERVER else ""
        listed = ", ".join(islice(names, NAMES_OF_SERVER)) + more
        yield f"{server or 'others'} ({len(names)}): {listed}"


def _name(tool: Tool) -> str:
    return one_line(_string(_function(tool).get("name"))) or NO_NAME


def _function(tool: Tool) -> Mapping[str, object]:
    """Return a function that is nested as in OpenAI's chat API, or flat as in the others."""
    definition = as_mapping(tool)
    return as_mapping(definition.get("function")) or definition


def _entry(tool: Tool, guard: Guard) -> Entry:
    function = _function(tool)
    name = guard.shatter(f"### {_name(tool)}")
    description = guard.quote(_string(function.get("description")))
    intro = f"{name}\n{description or NO_DESCRIPTION}\n"
    schema = next(filter(None, (as_mapping(function.get(key)) for key in _SCHEMA_KEYS)), {})
    parameters = list(_format_parameters(schema, guard))
    if not parameters:
        return Entry(text=intro, shorter=(name,))
    text = f"{intro}Parameters:\n" + "".join(f"{line}{about}\n" for line, about in parameters)
    brief = f"{intro}Parameters:\n" + "".join(f"{line}\n" for line, _ in parameters)
    # a shorter form of the same length would free no tokens
    return Entry(text=text, shorter=(name,) if text == brief else (brief, name))


def _format_parameters(schema: Mapping[str, object], guard: Guard) -> Iterator[tuple[str, str]]:
    """Yield a line ``- query (string, required)`` for each parameter, and ``: description``."""
    required = _list(schema.get("required"))
    for key, value in as_mapping(schema.get("properties")).items():
        types = one_line("|".join(dict.fromkeys(_list_types(value, _DEPTH))))
        need = "required" if key in required else "optional"
        about = one_line(_string(as_mapping(value).get("description")))
        line = guard.shatter(f"- {one_line(_string(key)) or NO_NAME} ({types}, {need})")
        yield line, f": {guard.shatter(about)}" if about else ""


def _list_types(schema: object, depth: int) -> tuple[str, ...]:
    """Return the JSON types that a schema allows; only ``any`` if it doesn't define them."""
    names = _read_types(as_mapping(schema), depth)
    return names if names and ANY_TYPE not in names else (ANY_TYPE,)


def _read_types(schema: Mapping[str, object], depth: int) -> tuple[str, ...]:
    declared = schema.get("type")
    names = (declared,) if isinstance(declared, str) else _list(declared)
    if names:
        return tuple(_string(name) or ANY_TYPE for name in names)
    alternatives = [schema_ for key in _ALTERNATIVES for schema_ in _list(schema.get(key))]
    if alternatives and depth:
        return tuple(name for schema_ in alternatives for name in _list_types(schema_, depth - 1))
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    return tuple(_JSON_TYPES.get(type(value), ANY_TYPE) for value in values)


def _string(value: object) -> str:
    return read_text(value).strip()


def _list(value: object) -> Sequence[object]:
    return value if is_list(value) else ()
