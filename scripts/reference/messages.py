"""The page of all messages, key by key, from their JSON Schemas."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scripts.reference.types import Schema, in_words
from service.wire.documents import schemas

_HEAD: Final = """\
# Messages, key by key

Every key of every message of the wire, with its type and its default.
This page is written by `make reference`, from the schemas, such as [this](schemas/request.json).
What the keys mean and do is in [wire.md](wire.md), and of events in [events.md](events.md).
Pass over keys that aren't listed here: a minor version may add some.
"""

#: The headings of the messages, by the names of their schemas.
_TITLES: Final[Mapping[str, str]] = {
    "request": "Request",
    "response": "Response",
    "result_row": "Row of a results stream",
    "context_pruned": "Event `context.pruned`",
    "context_summarized": "Event `context.summarized`",
    "context_compacted": "Event `context.compacted`",
}

_TABLE: Final = "| Key | Type | Default |\n| --- | --- | --- |"


def page() -> str:
    """Return the page."""
    described = schemas()
    parts = [_HEAD]
    told: set[str] = set()
    for name, title in _TITLES.items():
        schema = described[name]
        below = {name: schema["$defs"][name] for name in _mentioned(schema) if name not in told}
        told |= set(below)
        parts += [_object(f"## {title}", schema), *map(_below, below, below.values())]
    return "\n".join(parts)


def _mentioned(schema: Schema) -> list[str]:
    """Return the objects in a message, each once, in the order in which they are met."""
    found: dict[str, None] = {}
    waiting = list(_references(schema["properties"]))
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += _references(schema["$defs"][name])
    return [name for name in found if "properties" in schema["$defs"][name]]


def _references(schema: Any) -> Iterator[str]:  # noqa: ANN401 - a part of a schema
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _below(name: str, schema: Schema) -> str:
    return _object(f"### {name}", schema)


def _object(heading: str, schema: Schema) -> str:
    """Return the section of an object, with a line a key."""
    about = schema.get("description", "").partition("\n")[0].replace("``", "`")
    rows = [
        f"| `{name}` | {in_words(kind, _link)} | {_default(name, kind, schema)} |"
        for name, kind in schema["properties"].items()
    ]
    return "\n".join([f"{heading}\n", *([f"{about}\n"] if about else []), _TABLE, *rows, ""])


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _default(name: str, kind: Schema, schema: Schema) -> str:
    if name in schema.get("required", ()):
        return "required"
    if "default" not in kind:
        return ""
    # an object's default is that of each of its keys
    default = {} if isinstance(kind["default"], Mapping) else kind["default"]
    return f"`{json.dumps(default, ensure_ascii=False)}`"
