"""Presets: defaults that belong together, for one use of the service."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel

Preset = Literal["classic", "recall"]

#: What each sets, by section. Where anything else sets one of these, that goes before it.
PRESETS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    # the defaults themselves: five tagged messages, the newest turns, as the source systems do it
    "classic": {},
    # the newest turns from a place that stays, and what tells about the input
    "recall": {
        "budget": {
            "strategy": {"name": "relevance", "recent_share": 0.6, "chunk_share": 0.2},
        },
        "memory": {"limit": None, "header": "still"},
    },
}


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with what their preset sets of those that they leave out."""
    preset = values.get("preset")
    sections = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
    return {
        **values,
        **{name: _over(section, values.get(name)) for name, section in sections.items()},
    }


def _over(section: Mapping[str, Any], given: object) -> object:
    """Return a section with what was given of it; one that can't be read, as it is."""
    if isinstance(given, BaseModel):
        given = given.model_dump(exclude_unset=True)
    return {**section, **(given or {})} if isinstance(given, Mapping | None) else given
