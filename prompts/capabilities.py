"""The `[CAPABILITIES]` block: the tools of the conversation, one entry per tool."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from formatters.guard import one_line, quoted
from formatters.lookalikes import escaped
from formatters.model import Block, Entry, Facts, Tag, Tool, TrimPolicy
from formatters.rows import as_mapping, fix_surrogates

HEADER: Final = f"[{Tag.CAPABILITIES}]\nAvailable tools in this conversation:\n\n"
NO_TOOLS: Final = "(No tools available)"
NO_NAME: Final = "unknown"
NO_DESCRIPTION: Final = "No description"
ANY_TYPE: Final = "any"

#: The keys of a tool's parameters in the forms of OpenAI, Anthropic and MCP.
_SCHEMA_KEYS: Final = ("parameters", "input_schema", "inputSchema")

#: Keywords of JSON Schema whose value is a list of alternatives.
_ALTERNATIVES: Final = ("anyOf", "oneOf")

#: How many levels of alternatives in alternatives are read; a schema may contain itself.
_DEPTH: Final = 4

#: The delimiters of a parameter's line: ``(string, required)``.
_DELIMITERS: Final = frozenset("(),")

#: The characters at the edges of the context's structure.
_EDGES: Final = frozenset("[]<>:")

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
    """Show the tools in order; depends on ``facts.tools`` and ``facts.tags`` alone."""
    if facts.tools_block is not None:
        return facts.tools_block
    return Block(
        tag=Tag.CAPABILITIES,
        header=HEADER,
        entries=tuple(_entry(tool, facts.tags) for tool in facts.tools),
        placeholder=NO_TOOLS,
        gives_way=TrimPolicy.BY_DETAIL,
        additive=True,
    )


def _entry(tool: Tool, tags: frozenset[str]) -> Entry:
    definition = as_mapping(tool)
    # nested as in OpenAI's chat API, or flat as in the others
    function = as_mapping(definition.get("function")) or definition
    name = _format_heading(function.get("name"), tags)
    description = quoted(_string(function.get("description")), tags, headings=True)
    intro = f"{name}\n{description or NO_DESCRIPTION}\n"
    schema = next(filter(None, (as_mapping(function.get(key)) for key in _SCHEMA_KEYS)), {})
    parameters = list(_format_parameters(schema, tags))
    if not parameters:
        return Entry(text=intro, shorter=(name,))
    text = f"{intro}Parameters:\n" + "".join(f"{line}{about}\n" for line, about in parameters)
    brief = f"{intro}Parameters:\n" + "".join(f"{line}\n" for line, _ in parameters)
    # a shorter form of the same length would free no tokens
    return Entry(text=text, shorter=(name,) if text == brief else (brief, name))


def _format_parameters(
    schema: Mapping[str, object], tags: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yield a line ``- query (string, required)`` for each parameter, and ``: description``."""
    required = _list(schema.get("required"))
    for key, value in as_mapping(schema.get("properties")).items():
        types = "|".join(dict.fromkeys(_list_types(value, _DEPTH)))
        description = as_mapping(value).get("description")
        line = one_line(f"- {_string(key)} ({types}, x): {_string(description)}")
        # parts that are harmless one by one may not be so as a line
        marks = _DELIMITERS if quoted(line, tags) == line else _DELIMITERS | _EDGES
        name = escaped(_inline(key, tags), marks) or NO_NAME
        kind = escaped(_inline(types, tags), marks)
        need = "required" if key in required else "optional"
        about = _inline(description, tags)
        yield f"- {name} ({kind}, {need})", f": {about}" if about else ""


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


def _format_heading(name: object, tags: frozenset[str]) -> str:
    """Return the heading of a tool; a name that would turn it into other structure is escaped."""
    line = f"### {one_line(_string(name)) or NO_NAME}"
    guarded = quoted(line, tags)
    return line if guarded == line else guarded.replace("\\### ", "### \\", 1)


def _inline(value: object, tags: frozenset[str]) -> str:
    """Return a text on one line, guarded."""
    return quoted(one_line(_string(value)), tags)


def _string(value: object) -> str:
    return fix_surrogates(value).strip() if isinstance(value, str) else ""


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()
