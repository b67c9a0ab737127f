"""The `[CAPABILITIES]` block: the tools that this conversation offers, an entry a tool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from formatters.guard import one_line, quoted
from formatters.lookalikes import escaped
from formatters.model import Block, Entry, Facts, Tag, Tool, TrimPolicy
from formatters.rows import fix_surrogates

HEADER: Final = "[CAPABILITIES]\nAvailable tools in this conversation:\n\n"
NO_TOOLS: Final = "(No tools available)"
NO_NAME: Final = "unknown"
NO_DESCRIPTION: Final = "No description"
ANY_TYPE: Final = "any"

#: Where OpenAI, Anthropic and MCP keep a tool's parameters.
_SCHEMA_KEYS: Final = ("parameters", "input_schema", "inputSchema")

#: Keywords of JSON Schema whose value is a list of alternatives.
_ALTERNATIVES: Final = ("anyOf", "oneOf")

#: Alternatives inside alternatives are followed so far; a schema may contain itself.
_DEPTH: Final = 4

#: What parts a parameter's line: ``(string, required)``.
_PARTS: Final = frozenset("(),")

#: What our structure begins and ends with.
_EDGES: Final = frozenset("[]<>:")

#: What JSON Schema calls the types of JSON's scalars, for an ``enum`` without a type.
_JSON_TYPES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
    dict: "object",
    list: "array",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """A parameter as it is printed."""

    #: ``- query (string, required)``.
    line: str
    #: The same, and what it is for.
    described: str


def capabilities(facts: Facts) -> Block:
    """Show the tools in their order; a function of ``facts.tools`` and ``facts.tags`` alone."""
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
    function = _function(tool)
    name = _heading(function.get("name"), tags)
    description = quoted(_string(function.get("description")), tags, headings=True)
    intro = f"{name}\n{description or NO_DESCRIPTION}\n"
    parameters = tuple(_parameters(_schema(function), tags))
    if not parameters:
        return Entry(text=intro, shorter=(name,))
    text = f"{intro}Parameters:\n" + "".join(f"{each.described}\n" for each in parameters)
    brief = f"{intro}Parameters:\n" + "".join(f"{each.line}\n" for each in parameters)
    # a form that is no shorter would be a step down that frees nothing
    return Entry(text=text, shorter=(name,) if text == brief else (brief, name))


def _function(tool: object) -> Mapping[str, object]:
    """Find the definition, nested as OpenAI's chat API has it or flat as the others do."""
    definition = _mapping(tool)
    return _mapping(definition.get("function")) or definition


def _schema(function: Mapping[str, object]) -> Mapping[str, object]:
    return next(filter(None, (_mapping(function.get(key)) for key in _SCHEMA_KEYS)), {})


def _parameters(schema: Mapping[str, object], tags: frozenset[str]) -> Iterator[_Parameter]:
    required = _list(schema.get("required"))
    for key, value in _mapping(schema.get("properties")).items():
        types = "|".join(dict.fromkeys(_types(value, _DEPTH)))
        told = _mapping(value).get("description")
        whole = one_line(f"- {_string(key)} ({types}, x): {_string(told)}")
        # what is harmless in each part of a line may not be so together
        ends = _PARTS if quoted(whole, tags) == whole else _PARTS | _EDGES
        name = _word(key, ends, tags) or NO_NAME
        kind = _word(types, ends, tags)
        need = "required" if key in required else "optional"
        line = f"- {name} ({kind}, {need})"
        description = _inline(told, tags)
        described = f"{line}: {description}" if description else line
        yield _Parameter(line=line, described=described)


def _types(schema: object, depth: int) -> tuple[str, ...]:
    """Name the JSON types that a schema allows, or only ``any`` where it does not tell."""
    names = _named(_mapping(schema), depth)
    return names if names and ANY_TYPE not in names else (ANY_TYPE,)


def _named(schema: Mapping[str, object], depth: int) -> tuple[str, ...]:
    declared = schema.get("type")
    names = (declared,) if isinstance(declared, str) else _list(declared)
    if names:
        return tuple(_string(name) or ANY_TYPE for name in names)
    alternatives = [each for key in _ALTERNATIVES for each in _list(schema.get(key))]
    if alternatives and depth:
        return tuple(name for each in alternatives for name in _types(each, depth - 1))
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    return tuple(_JSON_TYPES.get(type(value), ANY_TYPE) for value in values)


def _heading(name: object, tags: frozenset[str]) -> str:
    """Open a tool; a name that would make another line of ours out of it is escaped."""
    line = f"### {one_line(_string(name)) or NO_NAME}"
    guarded = quoted(line, tags)
    return line if guarded == line else guarded.replace("\\### ", "### \\", 1)


def _word(value: object, ends: frozenset[str], tags: frozenset[str]) -> str:
    """Return a name or a type; what could end it and begin the next part is escaped."""
    return escaped(_inline(value, tags), ends)


def _inline(value: object, tags: frozenset[str]) -> str:
    """Return a text of one line, so that it cannot begin a line of its own."""
    return quoted(one_line(_string(value)), tags)


def _string(value: object) -> str:
    return fix_surrogates(value).strip() if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()
