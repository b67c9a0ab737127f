"""What a server lists, as definitions that can be offered; what can't is told with its cause."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from formatters.model import Tool
from service.config.content import McpServerSettings
from service.errors import ToolError, shown
from service.wire.tools import check_definition

#: No server's name has two of these in a row, so the first two end it.
SEPARATOR: Final = "__"
#: What OpenAI, Anthropic and Gemini all take; all of them want a letter first, or ``_``.
MAX_NAME_CHARS: Final = 64
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]")
#: Of the hash that tells changed names apart.
_DIGITS: Final = 8


def offered_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """Return the name that each tool is offered under, by the server's own.

    Characters that a provider doesn't take become ``_``. Where the name is too long then, or also
    another tool's, eight hex digits of a hash end it: the same in whatever order tools are listed.
    """
    whole = {name: f"{server}{SEPARATOR}{_OTHERS.sub('_', name)}" for name in names}
    held = Counter(whole.values())
    return {
        name: made if _fits(server, name, made, held[made]) else _hashed(made, name)
        for name, made in whole.items()
    }


def _fits(server: str, name: str, made: str, held: int) -> bool:
    unchanged = made == f"{server}{SEPARATOR}{name}"
    return len(made) <= MAX_NAME_CHARS and (unchanged or held == 1)


def _hashed(made: str, name: str) -> str:
    digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{made[: MAX_NAME_CHARS - _DIGITS - 1]}_{digits}"


#: Of a tool's own name, as MCP has it.
MOST_NAME_CHARS: Final = 128
#: Of a definition as JSON: a good thousand times a usual one is no tool but an attack.
MOST_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Definitions:
    """The tools of a listing that can be offered, by name, and what is wrong with others."""

    tools: tuple[Tool, ...] = ()
    #: A sentence each, with place and cause.
    refused: tuple[str, ...] = ()


def read_definitions(listed: Sequence[object], server: McpServerSettings) -> Definitions:
    """Read tools as MCP has them, leaving out those that the settings don't allow.

    They are sorted by name: a server may list the same tools in another order each time, and what
    is offered shall change only where they do.
    """
    named: dict[str, Mapping[str, object]] = {}
    refused = []
    for place, tool in enumerate(listed):
        name = tool.get("name") if isinstance(tool, Mapping) else None
        where = f"{server.name}: tool {place}"
        if not isinstance(tool, Mapping):
            refused.append(f"{where}: must be an object, not {type(tool).__name__}")
        elif not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME_CHARS:
            refused.append(f"{where}: /name must be 1 to {MOST_NAME_CHARS} characters")
        elif name in named:
            refused.append(f"{where}: there is another tool {shown(name)}")
        elif _allowed(name, server):
            named[name] = tool
    tools, wrong = _checked(named, server.name)
    return Definitions(tools, (*refused, *wrong))


def _allowed(name: str, server: McpServerSettings) -> bool:
    denied = any(fnmatchcase(name, pattern) for pattern in server.deny)
    return not denied and any(fnmatchcase(name, pattern) for pattern in server.allow)


def _checked(
    named: Mapping[str, Mapping[str, object]], server: str
) -> tuple[tuple[Tool, ...], list[str]]:
    tools, wrong = [], []
    for name, offered in sorted(offered_names(server, named).items(), key=lambda pair: pair[1]):
        definition = _definition(named[name], offered)
        try:
            check_definition(definition, f"{server}: tool {shown(name)}")
        except ToolError as error:
            wrong.append(error.detail)
            continue
        if len(json.dumps(definition, ensure_ascii=False)) > MOST_CHARS:
            wrong.append(f"{server}: tool {shown(name)}: takes more than {MOST_CHARS} characters")
            continue
        tools.append(definition)
    return tuple(tools), wrong


def _definition(tool: Mapping[str, object], name: str) -> Tool:
    function: dict[str, object] = {"name": name}
    description = next(filter(None, _descriptions(tool)), None)
    if description is not None:
        function["description"] = description
    schema = tool.get("inputSchema")
    if isinstance(schema, Mapping):
        # the dialect of a schema tells a model nothing, and some providers refuse it
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    if schema is not None:
        function["parameters"] = schema
    return {"type": "function", "function": function}


def _descriptions(tool: Mapping[str, object]) -> Iterator[object]:
    annotations = tool.get("annotations")
    yield tool.get("description")
    yield tool.get("title")
    yield annotations.get("title") if isinstance(annotations, Mapping) else None
