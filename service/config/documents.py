"""The settings as documents: a JSON Schema, and a commented example file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service.config.layers import ALIASES, REMOVED, RENAMED
from service.config.paths import Keys
from service.config.settings import Settings

#: A copy of `config.example.yml`, since the folder above is in no package; a test compares them.
EXAMPLE: Final = Path(__file__).with_name("example.yml")

#: Stands before the example's own words on where values come from.
_HEAD: Final = """\
# Settings of context-builder. A line that begins with "#" and a letter is a setting with its
# default: take the "#" away where you change the value. All other lines with "#" are comments.
"""
#: The words of the example that say what `_HEAD` says of a file that was made of it.
_COPY_IT: Final = re.compile(r"\A# Every setting .*?shown here\.\n", re.DOTALL)

_KEY: Final = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value> .*)?")
#: Blanks by which a section is set in.
_STEP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the example that has a key, and the comment above it."""

    number: int
    keys: Keys
    #: Whether it has a value, and is no section.
    leaf: bool
    #: As its lines are written, without their signs.
    comment: str


def template() -> str:
    """Return a file of all settings in which none is set."""
    text = _example()
    lines = text.splitlines()
    for line in _lines(text):
        if line.leaf:
            indent = " " * _STEP * (len(line.keys) - 1)
            lines[line.number] = f"{indent}#{lines[line.number].lstrip()}"
    return _HEAD + _COPY_IT.sub("", "\n".join(lines) + "\n")


def comments() -> Mapping[Keys, str]:
    """Return what the example says of each setting and section, by its path, line by line.

    A setting directly below another of its section, without words of its own, shares the other's.
    """
    return {line.keys: line.comment for line in _lines(_example()) if line.comment}


def _example() -> str:
    return EXAMPLE.read_text(encoding="utf-8")


def _lines(text: str) -> Iterator[_Line]:
    said: list[str] = []
    path: list[str] = []
    above: _Line | None = None
    for number, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("#"):
            said.append(line.lstrip().removeprefix("#").removeprefix(" "))
            continue
        if found := _KEY.fullmatch(line):
            path[len(found["indent"]) // _STEP :] = [found["key"]]
            above = _Line(
                number=number,
                keys=tuple(path),
                leaf=found["value"] is not None,
                comment="\n".join(said) or _shared(above, path),
            )
            yield above
        else:
            above = None
        said = []


def _shared(above: _Line | None, path: Sequence[str]) -> str:
    """Return what the line above says, where it is of a setting beside this one."""
    beside = above is not None and above.leaf and list(above.keys[:-1]) == path[:-1]
    return above.comment if above is not None and beside else ""


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
    _add_other_names(schema, sections)
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


def _add_other_names(schema: Schema, sections: Mapping[str, Schema]) -> None:
    """Allow the other names of settings, and mark those that are outdated."""

    def properties(keys: Sequence[str]) -> Schema:
        section = schema
        for key in keys[:-1]:
            section = sections[_name(section["properties"][key])]
        found: Schema = section["properties"]
        return found

    for old, new in {**ALIASES, **RENAMED}.items():
        old_keys, new_keys = old.split("."), new.split(".")
        setting = properties(new_keys)[new_keys[-1]]
        outdated = {"deprecated": True} if old in RENAMED else {}
        properties(old_keys)[old_keys[-1]] = {**setting, **outdated}
    for old, advice in REMOVED.items():
        old_keys = old.split(".")
        properties(old_keys)[old_keys[-1]] = {"deprecated": True, "description": advice}


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
    about: Schema = {
        key: schema[key] for key in ("description", "default", "deprecated") if key in schema
    }
    one = {key: value for key, value in schema.items() if key not in about}
    return {**about, "anyOf": [one, other]}
