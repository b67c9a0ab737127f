"""Presets: sets of defaults for one use of the service."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel

Preset = Literal["classic", "recall"]

#: The defaults of each preset, by section. Every other source takes precedence over them.
PRESETS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    # the defaults of the models: five tagged messages, the newest turns, as in the source systems
    "classic": {},
    # the newest turns from a stable start, and older turns that are relevant to the input
    "recall": {
        "budget": {
            "strategy": {"name": "relevance", "recent_share": 0.6, "chunk_share": 0.2},
        },
        "memory": {"limit": None, "header": "still"},
    },
}


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the defaults of their preset filled in."""
    preset = values.get("preset")
    sections = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
    filled = {name: _fill(values.get(name), section) for name, section in sections.items()}
    return {**values, **filled}


def _fill(section: object, defaults: Mapping[str, Any]) -> object:
    """Return a section with defaults; a section of the wrong type is left to validation."""
    if isinstance(section, BaseModel):
        section = section.model_dump(exclude_unset=True)
    return {**defaults, **(section or {})} if isinstance(section, Mapping | None) else section
