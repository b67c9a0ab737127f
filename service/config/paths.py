"""Paths into the tree of settings, such as ``bus.url``."""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import get_args, get_origin

from pydantic import BaseModel

from service.config.settings import Settings

#: The keys that lead to a value, such as ``("bus", "url")``.
Keys = tuple[str, ...]


def dotted(keys: Keys) -> str:
    """Return a path as people write it, such as ``bus.url``."""
    return ".".join(keys)


def leaves(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Yield every value that is not a section itself, in the order of the model."""
    if isinstance(value, BaseModel):
        children = [(name, getattr(value, name)) for name in type(value).model_fields]
    elif isinstance(value, Mapping) and value:
        children = list(value.items())
    else:
        yield keys, value
        return
    for name, child in children:
        yield from leaves(child, (*keys, name))


def known_keys(keys: Keys) -> list[str]:
    """Return the keys of a section; none if there is no such section."""
    return list(_fields(_type_at(keys)))


def is_nested(keys: Keys) -> bool:
    """Return whether a path leads to a section, a mapping or a list."""
    kind = _type_at(keys)
    return bool(_fields(kind)) or get_origin(kind) in {Mapping, tuple}


def is_nullable(keys: Keys) -> bool:
    """Return whether a setting can be null."""
    return NoneType in get_args(_type_at(keys))


def _type_at(keys: Keys) -> object:
    """Return the annotation of a setting, or None."""
    kind: object = Settings
    for key in keys:
        fields = _fields(kind)
        # below a mapping of sections, any key leads to a section
        kind = fields[key] if key in fields else next(iter(get_args(kind)[1:]), None)
    return kind


def _fields(kind: object) -> dict[str, object]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return {}
