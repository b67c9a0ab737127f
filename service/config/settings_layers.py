"""Layers of settings: what one source sets, where it sets each value, and what is wrong with it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel

from prompts.layers import deep_merge
from service.config.paths import Keys, known_keys
from service.config.presets import PRESETS, Preset
from service.config.settings import ARGUMENT, at

#: Names that the source systems have for settings of ours. They are supported for good.
ALIASES: Final[Mapping[str, str]] = {"memory.history_context_size": "memory.limit"}

#: Earlier names of settings, which are read with a warning.
RENAMED: Final[Mapping[str, str]] = {
    "bus.socket_timeout": "bus.socket_timeout_seconds",
    "manifests.max_bytes": "reports.max_bytes",
    "manifests.ttl_seconds": "reports.ttl_seconds",
}

#: Settings and whole sections that no longer exist. They are ignored with a warning: this
#: sentence, which names the successor or says that there is none.
REMOVED: Final[Mapping[str, str]] = {"manifests": "Build reports replace them: see reports."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The settings of one source."""

    values: dict[str, object] = field(default_factory=dict)
    #: Where the source sets a value: a file with line and column, or the name of a variable.
    locations: dict[Keys, str] = field(default_factory=dict)
    #: Lines of the error message.
    problems: list[str] = field(default_factory=list)
    #: Lines about outdated settings, which are no errors.
    warnings: list[str] = field(default_factory=list)

    def location(self, keys: Keys) -> str | None:
        """Return where this source sets a value, or None if it doesn't."""
        if keys in self.locations:
            return self.locations[keys]
        if not keys:
            return None
        *parents, last = keys
        parent = value_at(self.values, parents)
        # a parent that is text is a variable with malformed JSON, which might have held the value
        if isinstance(parent, str) or (isinstance(parent, dict) and last in parent):
            # a variable sets a whole section, so that its values have no location of their own
            return self.location(tuple(parents))
        return None


def has_section(name: str) -> bool:
    """Return whether there is or was a section of this name."""
    other_names = {*ALIASES, *RENAMED, *REMOVED}
    return name in known_keys(()) or name in {old.partition(".")[0] for old in other_names}


def replace_outdated(layer: Layer) -> Layer:
    """Return a layer without outdated settings: renamed ones are moved, removed ones dropped."""
    layer = deepcopy(layer)
    for old, new in {**ALIASES, **RENAMED}.items():
        _rename(layer, old, new)
    for old, advice in REMOVED.items():
        _remove(layer, old, advice)
    return layer


def _rename(layer: Layer, old: str, new: str) -> None:
    old_keys, new_keys = tuple(old.split(".")), tuple(new.split("."))
    if not _sets(layer, old_keys):
        return
    location = layer.location(old_keys) or ""
    value = _pop(layer, old_keys)
    if _sets(layer, new_keys) and old in RENAMED:  # one file may serve two versions
        layer.warnings.append(f"{at(location, old)}: is ignored, since {new} is set")
        return
    if _sets(layer, new_keys):
        same = f"another name of {new}, which is set as well"
        layer.problems.append(f"{at(location, old)}: {same}")
    if old in RENAMED:
        layer.warnings.append(f"{at(location, old)}: is called {new} now")
    set_value(layer.values, new_keys, value)
    layer.locations[new_keys] = location


def _remove(layer: Layer, old: str, advice: str) -> None:
    keys = tuple(old.split("."))
    if _sets(layer, keys):
        # a section that variables set one by one has no location of its own
        below = (path for path in layer.locations if path[: len(keys)] == keys)
        location = layer.location(keys) or layer.locations[next(below)]
        layer.warnings.append(f"{at(location, old)}: is ignored. {advice}")
        _pop(layer, keys)


def _sets(layer: Layer, keys: Keys) -> bool:
    section = value_at(layer.values, keys[:-1])
    return isinstance(section, dict) and keys[-1] in section


def _pop(layer: Layer, keys: Keys) -> object:
    """Remove a value, and its section with it if that no longer exists and is empty now."""
    *parents, last = keys
    section = value_at(layer.values, parents)
    value = section.pop(last) if isinstance(section, dict) else None
    if parents and not section and not known_keys(tuple(parents)):
        _pop(layer, tuple(parents))
    return value


def value_at(values: object, keys: Sequence[str]) -> object:
    """Return the value that a path leads to, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def set_value(values: dict[str, object], keys: Keys, value: object) -> None:
    """Set the value that a path leads to; sections on the way that are missing are added."""
    *parents, last = keys
    section: object = values
    for key in parents:
        if not isinstance(section, dict):
            return  # text, which validation reports
        if section.get(key) is None:
            section[key] = {}
        section = section[key]
    if isinstance(section, dict):
        section[last] = value


def arguments_layer(values: Mapping[str, object]) -> Layer:
    """Return the layer of values that were passed in code."""
    locations: dict[Keys, str] = {(key,): ARGUMENT for key in values}
    plain = {
        key: value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        for key, value in values.items()
    }
    return replace_outdated(Layer(values=plain, locations=locations))


def preset_layer(name: Preset) -> Layer:
    """Return the layer of a preset, for the origins of its values."""
    sections = {section: dict(values) for section, values in PRESETS[name].items()}
    locations: dict[Keys, str] = {
        (section, key): f"preset {name}" for section, keys in sections.items() for key in keys
    }
    return Layer(values=dict(sections), locations=locations)


def merge(layers: Sequence[Layer]) -> dict[str, object]:
    """Return the values of all layers; earlier layers take precedence, key by key."""
    values: dict[str, object] = {}
    for layer in reversed(layers):
        values = deep_merge(values, layer.values)
    return values
