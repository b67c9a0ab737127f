"""Types of a JSON Schema, in words."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

#: What a type is called where nothing more is said of it; its bounds are put behind it.
_NAMES: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
    "array": "list",
}

#: Formats that say more than ``text``.
_FORMATS: Final = {"password": "secret", "path": "path", "date-time": "ISO 8601"}

#: Keywords of the lowest and the highest, and what they count.
_BOUNDS: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " keys"),
)


def in_words(schema: Schema, named: Callable[[str], str]) -> str:
    """Return what a value may be; ``named`` says how a definition of a name is called."""
    if "$ref" in schema:
        return named(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            kinds = [in_words(each, named) for each in schema[choice]]
            return (", or " if "," in "".join(kinds) else " or ").join(kinds)
    kind = schema.get("type")
    if kind is None:
        return "anything"
    return ", ".join([_kind(schema, kind, named), *_bounds(schema)])


def _kind(schema: Schema, kind: str, named: Callable[[str], str]) -> str:
    if "items" in schema:
        return f"list of {in_words(schema['items'], named)}"
    values = schema.get("additionalProperties")
    if kind == "object" and isinstance(values, Mapping):
        return f"object of {in_words(values, named)}"
    return _FORMATS.get(schema.get("format", ""), _NAMES[kind])


def _bounds(schema: Schema) -> list[str]:
    if "exclusiveMinimum" in schema:
        most = [f"up to {schema['maximum']}"] if "maximum" in schema else []
        return [f"more than {schema['exclusiveMinimum']}", *most]
    found = (_bound(schema.get(low), schema.get(high), what) for low, high, what in _BOUNDS)
    return [each for each in found if each]


def _bound(low: float | None, high: float | None, what: str) -> str:
    if low is None and high is None:
        return ""
    if low is None:
        return f"up to {high}{what}"
    if low == 1 and high is None and what:
        return "not empty"
    return f"{low} to {high}{what}" if high is not None else f"{low} or more{what}"
