"""The settings as documents: a commented file to start from, and a JSON Schema."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service.config.paths import Keys
from service.config.presets import Preset
from service.config.settings import Settings
from service.config.settings_layers import ALIASES, REMOVED, RENAMED

Schema = dict[str, Any]

#: A copy of `config.example.yml`, which is in no package; a test compares them.
EXAMPLE: Final = Path(__file__).with_name("example.yml")

#: Replaces the first paragraph of the example in the template.
_HEAD: Final = """\
# Settings of context-builder. A line that begins with "#" and a letter is a setting with its
# default: delete the "#" to change the value. All other lines with "#" are comments.
"""
_EXAMPLE_HEAD: Final = re.compile(r"\A# Every setting .*?shown here\.\n", re.DOTALL)

_KEY: Final = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value> .*)?")
_INDENT: Final = 2


#: The settings of a new file, by the preset that it is for.
_CHOSEN: Final[Mapping[Preset, Mapping[Keys, str]]] = {
    "classic": {},
    "recall": {
        ("preset",): "recall",
        # tokens that history can use
        ("prompts", "identity"): "plain",
        ("prompts", "capabilities"): "names",
    },
}


def template(preset: Preset = "classic") -> str:
    """Return the example file with the settings of a preset, and all others commented out."""
    text = EXAMPLE.read_text(encoding="utf-8")
    lines = text.splitlines()
    for line in _key_lines(text):
        if line.is_leaf:
            indent = " " * _INDENT * (len(line.keys) - 1)
            value = _CHOSEN[preset].get(line.keys)
            setting = f"{line.keys[-1]}: {value}" if value else f"#{lines[line.number].lstrip()}"
            lines[line.number] = f"{indent}{setting}"
    return _HEAD + _EXAMPLE_HEAD.sub("", "\n".join(lines) + "\n")


def comments() -> Mapping[Keys, str]:
    """Return the example's comment on each setting and section, by its path, line by line.

    A setting without a comment shares that of the setting directly above it in its section.
    """
    text = EXAMPLE.read_text(encoding="utf-8")
    return {line.keys: line.comment for line in _key_lines(text) if line.comment}


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyLine:
    """A line of the example with a key, and the comment above it."""

    number: int
    keys: Keys
    #: Whether it has a value; otherwise it begins a section.
    is_leaf: bool
    #: Its lines without "#".
    comment: str


def _key_lines(text: str) -> Iterator[_KeyLine]:
    comment: list[str] = []
    path: list[str] = []
    previous: _KeyLine | None = None
    for number, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip().removeprefix("#").removeprefix(" "))
            continue
        if match := _KEY.fullmatch(line):
            path[len(match["indent"]) // _INDENT :] = [match["key"]]
            previous = _KeyLine(
                number=number,
                keys=tuple(path),
                is_leaf=match["value"] is not None,
                comment="\n".join(comment) or _shared_comment(previous, path),
            )
            yield previous
        else:
            previous = None
        comment = []


def _shared_comment(previous: _KeyLine | None, path: Sequence[str]) -> str:
    if previous is None or not previous.is_leaf or list(previous.keys[:-1]) != path[:-1]:
        return ""
    return previous.comment


#: A reference to a variable, in place of a value that is not text.
REFERENCE: Final[Schema] = {"type": "string", "pattern": r"\$\{[A-Za-z_]\w*(:-[^}]*)?\}"}

#: Types whose values may be references.
_PARSED_FROM_TEXT: Final = {"integer", "number", "boolean"}


def config_schema() -> Schema:
    """Return the JSON Schema of configuration files, described with the example's comments."""
    schema = Settings.model_json_schema()
    sections: dict[str, Schema] = schema["$defs"]
    _describe(schema, (), sections, comments())
    _add_other_names(schema, sections)
    relaxed: Schema = _relax(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **relaxed,
        "title": "Settings of context-builder",
        "description": "config.yml of context-builder",
    }


def _describe(
    section: Schema, parents: Keys, sections: Mapping[str, Schema], texts: Mapping[Keys, str]
) -> None:
    """Describe the settings of a section and of those below it."""
    for name, setting in section.get("properties", {}).items():
        keys = (*parents, name)
        if keys in texts:
            setting["description"] = texts[keys]
        if "$ref" in setting:
            _describe(sections[_definition(setting)], keys, sections, texts)


def _add_other_names(schema: Schema, sections: Mapping[str, Schema]) -> None:
    """Allow the other names of settings, and mark those that are outdated."""

    def section_of(keys: Sequence[str]) -> Schema | None:
        """Return the section of a setting, or None after adding one that no longer exists."""
        section = schema
        for key in keys[:-1]:
            reference = section["properties"].setdefault(key, {"deprecated": True})
            if "$ref" not in reference:
                return None
            section = sections[_definition(reference)]
        return section

    def add(name: str, setting: Schema) -> None:
        *_, last = keys = name.split(".")
        if section := section_of(keys):
            section["properties"][last] = setting

    for old, new in {**ALIASES, **RENAMED}.items():
        *_, last = keys = new.split(".")
        section = section_of(keys) or {}
        outdated = {"deprecated": True} if old in RENAMED else {}
        add(old, {**section["properties"][last], **outdated})
    for old, advice in REMOVED.items():
        add(old, {"deprecated": True, "description": advice})


def _definition(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _relax(schema: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Allow references in place of values, and empty sections; remove titles, which are names."""
    if isinstance(schema, list):
        return [_relax(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    relaxed: Schema = {}
    for key, value in schema.items():
        if key in {"properties", "$defs"}:  # their keys are names, not keywords
            relaxed[key] = {name: _relax(item) for name, item in value.items()}
        elif key != "title":
            relaxed[key] = _relax(value)
    if relaxed.get("type") in _PARSED_FROM_TEXT or "enum" in relaxed:
        return _either(relaxed, REFERENCE)
    return _either(relaxed, {"type": "null"}) if "$ref" in relaxed else relaxed


def _either(schema: Schema, other: Schema) -> Schema:
    """Return a schema that allows another one as well, with the annotations of the first."""
    annotations = ("description", "default", "deprecated")
    about: Schema = {key: schema[key] for key in annotations if key in schema}
    rest = {key: value for key, value in schema.items() if key not in annotations}
    return {**about, "anyOf": [rest, other]}
