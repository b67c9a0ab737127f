"""Describe the types of a JSON Schema in words."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

#: Names of types; their bounds follow.
_NAMES: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
    "array": "list",
}

#: Names of formats, instead of ``text``.
_FORMATS: Final = {"password": "secret", "path": "path", "date-time": "ISO 8601"}

#: Keywords of the minimum and the maximum, and their unit.
_BOUNDS: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " keys"),
)


def describe_type(schema: Schema, named: Callable[[str], str]) -> str:
    """Return the type of a value; ``named`` returns the text for a definition by its name."""
    if "$ref" in schema:
        return named(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            kinds = [describe_type(option, named) for option in schema[choice]]
            return (", or " if "," in "".join(kinds) else " or ").join(kinds)
    kind = schema.get("type")
    if kind is None:
        return "anything"
    return ", ".join([_kind(schema, kind, named), *_bounds(schema)])


def _kind(schema: Schema, kind: str, named: Callable[[str], str]) -> str:
    if "items" in schema:
        return f"list of {describe_type(schema['items'], named)}"
    values = schema.get("additionalProperties")
    if kind == "object" and isinstance(values, Mapping):
        return f"object of {describe_type(values, named)}"
    return _FORMATS.get(schema.get("format", ""), _NAMES[kind])


def _bounds(schema: Schema) -> list[str]:
    if "exclusiveMinimum" in schema:
        maximum = [f"up to {schema['maximum']}"] if "maximum" in schema else []
        return [f"more than {schema['exclusiveMinimum']}", *maximum]
    bounds = (_bound(schema.get(low), schema.get(high), unit) for low, high, unit in _BOUNDS)
    return [bound for bound in bounds if bound]


def _bound(low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return ""
    if low is None:
        return f"up to {high}{unit}"
    if low == 1 and high is None and unit:
        return "not empty"
    return f"{low} to {high}{unit}" if high is not None else f"{low} or more{unit}"
