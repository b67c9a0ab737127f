"""The settings as a JSON Schema, by which editors complete and check a configuration file."""

from collections.abc import Mapping
from typing import Any, Final

from service.config.layers import RENAMED
from service.config.paths import Keys
from service.config.settings import Settings
from service.config.template import comments

Schema = dict[str, Any]

#: A variable in place of a value that is no text.
REFERENCE: Final[Schema] = {"type": "string", "pattern": r"\$\{[A-Za-z_]\w*(:-[^}]*)?\}"}

#: Types that are read from text where a variable stands for them.
_READ_FROM_TEXT: Final = {"integer", "number", "boolean"}


def config_schema() -> Schema:
    """Return the schema, with what the example says of each setting as its description."""
    schema = Settings.model_json_schema()
    sections: dict[str, Schema] = schema["$defs"]
    _describe(schema, (), sections, comments())
    for old, new in RENAMED.items():
        _rename(schema, sections, old, new)
    opened: Schema = _opened(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **opened,
        "title": "Settings of context-builder",
        "description": "config.yml of context-builder",
    }


def _describe(
    section: Schema, keys: Keys, sections: Mapping[str, Schema], said: Mapping[Keys, str]
) -> None:
    """Give each setting the example's words, from a section on downwards."""
    for name, each in section.get("properties", {}).items():
        path = (*keys, name)
        if path in said:
            each["description"] = said[path]
        if "$ref" in each:
            _describe(sections[_name(each)], path, sections, said)


def _rename(schema: Schema, sections: Mapping[str, Schema], old: Keys, new: Keys) -> None:
    """Let a setting be called by its other name as well."""
    section = schema
    for key in new[:-1]:
        section = sections[_name(section["properties"][key])]
    section["properties"][old[-1]] = section["properties"][new[-1]]


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _opened(schema: Any) -> Any:  # noqa: ANN401 - whatever stands in a schema
    """Let variables stand for values, and sections be empty; leave out titles, which are names."""
    if isinstance(schema, list):
        return [_opened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    opened = {
        key: _properties(value) if key in {"properties", "$defs"} else _opened(value)
        for key, value in schema.items()
        if key != "title"
    }
    if opened.get("type") in _READ_FROM_TEXT or "enum" in opened:
        return _either(opened, REFERENCE)
    return _either(opened, {"type": "null"}) if "$ref" in opened else opened


def _properties(named: Mapping[str, Schema]) -> Schema:
    """Return schemas by their names, which are no words of a schema's own."""
    return {name: _opened(each) for name, each in named.items()}


def _either(schema: Schema, other: Schema) -> Schema:
    about: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    one = {key: value for key, value in schema.items() if key not in about}
    return {**about, "anyOf": [one, other]}
