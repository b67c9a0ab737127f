"""A source of settings: what it sets, and where every value of it stands."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from pydantic import BaseModel

from prompts.layers import deep_merge
from service.config.paths import Keys, dotted
from service.config.presets import PRESETS, Preset

#: Names of the source systems, and what they are called here.
RENAMED: Mapping[Keys, Keys] = {("memory", "history_context_size"): ("memory", "limit")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one source sets."""

    values: dict[str, object] = field(default_factory=dict)
    #: A file with line and column, or the name of a variable.
    places: dict[Keys, str] = field(default_factory=dict)
    #: Lines for the error message.
    problems: list[str] = field(default_factory=list)

    def place(self, keys: Keys) -> str | None:
        """Return where a value stands, or None where this source does not set it."""
        if keys in self.places:
            return self.places[keys]
        if not keys:
            return None
        section = keys[:-1]
        if lookup(self.values, section, keys[-1]) is None and not self._is_text(section):
            return None
        # a whole section may stand in one place, as in a variable that holds JSON
        return self.place(section)

    def _is_text(self, keys: Keys) -> bool:
        """Tell whether a section is written as a text, which is read as JSON later."""
        found = lookup(self.values, keys[:-1], keys[-1]) if keys else None
        return found is not None and isinstance(found[keys[-1]], str)

    def renamed(self) -> "Layer":
        """Move values that stand under a source system's name to where they belong."""
        layer = deepcopy(self)
        for old, new in RENAMED.items():
            section = lookup(layer.values, old[:-1], old[-1])
            if section is None:
                continue
            place = layer.place(old) or ""
            if new[-1] in section:
                same = f"another name of {dotted(new)}, which is set as well"
                layer.problems.append(f"{place}  {dotted(old)}: {same}")
            section[new[-1]] = section.pop(old[-1])
            layer.places[new] = place
        return layer


def lookup(values: dict[str, object], keys: Keys, last: str) -> dict[str, object] | None:
    """Return the mapping that the keys lead to, if the last key stands in it."""
    section: object = values
    for key in keys:
        section = section.get(key) if isinstance(section, dict) else None
    return section if isinstance(section, dict) and last in section else None


def arguments(values: Mapping[str, object]) -> Layer:
    """Return the layer of values that were given in code."""
    places: dict[Keys, str] = {(key,): "argument" for key in values}
    plain = {
        key: value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        for key, value in values.items()
    }
    return Layer(values=plain, places=places).renamed()


def preset_layer(name: Preset) -> Layer:
    """Return what a preset sets, to tell where values come from."""
    sections = {section: dict(values) for section, values in PRESETS[name].items()}
    places: dict[Keys, str] = {
        (section, key): f"preset {name}" for section, keys in sections.items() for key in keys
    }
    return Layer(values=dict(sections), places=places)


def merged(layers: Sequence[Layer]) -> dict[str, object]:
    """Return the values of all layers; the first goes before the others, key by key."""
    values: dict[str, object] = {}
    for layer in reversed(layers):
        values = deep_merge(values, layer.values)
    return values
