"""The tools that a server lists, as definitions that can be offered to a model."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from formatters.model import Tool
from prompts.capabilities import SERVER_SEPARATOR
from service.config.content import McpServerSettings
from service.errors import ToolError, shown
from service.ports.services import ServerTools
from service.wire.tool_definitions import check_definition

#: The limits of names that OpenAI, Anthropic and Gemini all accept; the first character must be a
#: letter or ``_``.
MAX_OFFERED_CHARS: Final = 64
_REFUSED_CHARS: Final = re.compile(r"[^A-Za-z0-9_-]")
#: The length of the hash that keeps changed names apart.
_HASH_DIGITS: Final = 8
#: The longest name of a tool by MCP.
MAX_NAME_CHARS: Final = 128
#: The longest definition as JSON. A usual one is a thousand times shorter.
MAX_DEFINITION_CHARS: Final = 100_000


def read_definitions(listed: Sequence[object], server: McpServerSettings) -> ServerTools:
    """Check tools as MCP lists them, without those that the settings don't allow.

    They are sorted by name, since a server may list the same tools in any order, and what is
    offered should change only when they do.
    """
    by_name: dict[str, Mapping[str, object]] = {}
    refused = []
    for index, tool in enumerate(listed):
        name = tool.get("name") if isinstance(tool, Mapping) else None
        where = f"{server.name}: tool {index}"
        if not isinstance(tool, Mapping):
            refused.append(f"{where}: must be an object, not {type(tool).__name__}")
        elif not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARS:
            refused.append(f"{where}: /name must be 1 to {MAX_NAME_CHARS} characters")
        elif name in by_name:
            refused.append(f"{where}: there is another tool {shown(name)}")
        elif _matches(name, server.allow) and not _matches(name, server.deny):
            by_name[name] = tool
    tools = []
    offered = offered_names(server.name, by_name)
    for name in sorted(by_name, key=offered.__getitem__):
        try:
            where = f"{server.name}: tool {shown(name)}"
            tools.append(_definition(by_name[name], offered[name], where))
        except ToolError as error:
            refused.append(error.detail)
    return ServerTools(server.name, tools, refused)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _definition(tool: Mapping[str, object], name: str, where: str) -> Tool:
    function: dict[str, object] = {"name": name}
    annotations = tool.get("annotations")
    title = annotations.get("title") if isinstance(annotations, Mapping) else None
    if description := tool.get("description") or tool.get("title") or title:
        function["description"] = description
    schema = tool.get("inputSchema")
    if isinstance(schema, Mapping):
        # the dialect of a schema means nothing to a model, and some providers reject it
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    if schema is not None:
        function["parameters"] = schema
    definition: Tool = {"type": "function", "function": function}
    check_definition(definition, where)
    if len(json.dumps(definition, ensure_ascii=False)) > MAX_DEFINITION_CHARS:
        raise ToolError(f"{where}: takes more than {MAX_DEFINITION_CHARS} characters")
    return definition


def offered_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """Return the name that each tool is offered under, by its own name.

    Characters that a provider doesn't accept become ``_``. If the result is too long, or equal to
    another tool's, it ends in a hash of the name; it never depends on the order of the tools.
    """
    offered = {name: f"{server}{SERVER_SEPARATOR}{_REFUSED_CHARS.sub('_', name)}" for name in names}
    counts = Counter(offered.values())

    def unique(name: str) -> str:
        made = offered[name]
        is_own = made == f"{server}{SERVER_SEPARATOR}{name}" or counts[made] == 1
        if is_own and len(made) <= MAX_OFFERED_CHARS:
            return made
        digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
        return f"{made[: MAX_OFFERED_CHARS - _HASH_DIGITS - 1]}_{digits}"

    return {name: unique(name) for name in offered}
