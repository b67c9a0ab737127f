"""Presets: sets of defaults for one use of the service; and a default from the environment."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel

Preset = Literal["classic", "recall"]

#: The defaults of each preset, by section. Every other source takes precedence over them.
PRESETS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    # the defaults of the models: five tagged messages, the newest turns, as in the source systems
    "classic": {},
    # the newest turns from a stable start, older turns that are relevant to the input, and what
    # tools answered
    "recall": {
        "budget": {"strategy": {"name": "relevance", "recent_share": 0.6, "chunk_share": 0.2}},
        "memory": {"limit": None, "header": "still", "tool_results": "printed"},
    },
}

#: The part of the history in a context of each preset, for a person who chooses one.
DESCRIPTIONS: Final[Mapping[Preset, str]] = {
    "classic": "the newest turns, at most 20 rows",
    "recall": "the newest turns, and older messages that are relevant to the input",
}


def is_chosen(paths: Iterable[str]) -> bool:
    """Return whether settings of these dotted paths choose a preset, or replace what it sets."""
    sections = PRESETS["recall"].items()
    keys = ("preset", *(f"{section}.{key}" for section, values in sections for key in values))
    return any(path == key or path.startswith(f"{key}.") for path in paths for key in keys)


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the defaults of their preset filled in."""
    preset = values.get("preset")
    sections = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
    filled = {name: _fill(values.get(name), section) for name, section in sections.items()}
    return {**values, **filled}


#: Switches `recall.semantic` on in every program, also in one that makes its settings itself.
SEMANTIC_VARIABLE: Final = "CTXB_RECALL__SEMANTIC"


def with_environment(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the one default that an environment variable replaces."""
    if value := os.environ.get(SEMANTIC_VARIABLE):
        values = {**values, "recall": _fill(values.get("recall"), {"semantic": value})}
    return dict(values)


def _fill(section: object, defaults: Mapping[str, Any]) -> object:
    """Return a section with defaults; a section of the wrong type is left to validation."""
    if isinstance(section, BaseModel):
        section = section.model_dump(exclude_unset=True)
    return {**defaults, **(section or {})} if isinstance(section, Mapping | None) else section
