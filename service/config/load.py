"""Load the settings from all sources, with the origin of each value."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from service.config.paths import Keys, dotted, is_nullable, known_keys, leaves
from service.config.settings import ARGUMENT, Settings, at
from service.config.settings_layers import Layer, arguments_layer, merge, preset_layer
from service.config.sources import (
    CONFIG_VARIABLE,
    ENV_FILE_VARIABLE,
    read_env_file,
    variables_layer,
    yaml_layer,
)
from service.errors import ConfigError, did_you_mean, not_among, shown
from service.observe.logs import MASK, mask_urls

#: Read if no file is named.
DEFAULT_FILE = Path("config.yml")

#: How a problem in a YAML file begins: with the file, the line and the column.
_IN_FILE = re.compile(r"(.+?):(\d+):(\d+)  ")

#: Replacements for pydantic's messages in terms of Python, by its type of error.
MESSAGES = {
    "tuple_type": "must be a list; in a variable, one in JSON",
    "dict_type": "must hold keys and values; in a variable, in JSON",
    "model_type": "must hold keys and values; in a variable, in JSON",
    "missing": "is missing",
}

#: Pydantic's types of errors for a text that is no number and no switch.
UNREADABLE = frozenset({"int_parsing", "float_parsing", "bool_parsing"})


def load_settings(path: Path | str | None = None, **overrides: object) -> Settings:
    """Return the settings of this process: of ``overrides``, variables and files.

    Sources, in order of precedence: the arguments; variables that begin with ``CTXB_``; the .env
    file that ``CTXB_ENV_FILE`` names, else ``.env`` in the working directory if it exists; the
    YAML file that ``path`` or ``CTXB_CONFIG`` names, else ``config.yml`` in the working directory
    if it exists; the preset; the defaults. Outdated settings are no errors: `Settings.warnings`
    has a line for each.

    Raises `ConfigError` with a line for each problem and its location: first those in the YAML
    file, from top to bottom, then the others.
    """
    environ = dict(os.environ)
    env_name, from_file = read_env_file(environ.get(ENV_FILE_VARIABLE))
    known = {**from_file, **environ}
    layers = [
        arguments_layer(overrides),
        variables_layer(environ),
        variables_layer(from_file, env_name),
    ]
    named = path or known.get(CONFIG_VARIABLE)
    file = Path(named) if named else DEFAULT_FILE
    if file is not DEFAULT_FILE or file.is_file():
        layers.append(yaml_layer(file, known, CONFIG_VARIABLE if named and not path else ""))
    problems = [problem for layer in layers for problem in layer.problems]
    try:
        settings = Settings.model_validate(merge(layers))
    except ValidationError as error:
        problems += [_describe_error(item, layers) for item in error.errors(include_url=False)]
    if problems:
        raise ConfigError("\n".join(sorted(problems, key=_sort_key)))
    layers.append(preset_layer(settings.preset))
    locations = {dotted(keys): _locate(keys, layers) for keys, _ in leaves(settings)}
    origins = {name: location for name, location in locations.items() if location is not None}
    return settings.loaded(origins, [warning for layer in layers for warning in layer.warnings])


def _locate(keys: Keys, layers: Sequence[Layer]) -> str | None:
    """Return where the value in effect is set, or None for a default."""
    locations = (layer.location(keys) for layer in layers)
    return next((location for location in locations if location is not None), None)


def _describe_error(error: ErrorDetails, layers: Sequence[Layer]) -> str:
    """Return the line for an error of validation."""
    keys = tuple(str(key) for key in error["loc"])
    # a key that is missing has no location, so that its section's is reported
    locations = (_locate(keys[:length], layers) for length in range(len(keys), 0, -1))
    location = next((location for location in locations if location is not None), None)
    line = f"{at(location, dotted(keys))}: {_message(error, keys)}"
    if error["type"] == "extra_forbidden" and location == ARGUMENT and len(keys) == 1:
        return f"{line}; arguments are path, {', '.join(known_keys(()))}"
    return line


def _message(error: ErrorDetails, keys: Keys) -> str:
    if error["type"] == "extra_forbidden":
        *parents, last = keys
        known = known_keys(tuple(parents))
        name = last.removeprefix("".join(f"{section}_" for section in parents[-1:]))
        return f"unknown key{did_you_mean(name, known, lambda key: dotted((*parents, key)))}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    message = MESSAGES.get(error["type"]) or error["msg"][:1].lower() + error["msg"][1:]
    if error["type"] == "literal_error":
        return f"{message}{not_among(error['input'], message)}"
    if error["type"] not in UNREADABLE:
        return message
    null = is_nullable(keys) and str(error["input"]).lower() in {"none", "nil"}
    return f"{message}: {shown(error['input'])}{'; did you mean null?' if null else ''}"


def _sort_key(problem: str) -> tuple[bool, str, int, int, str]:
    match = _IN_FILE.match(problem)
    if match is None:
        return True, "", 0, 0, problem
    file, line, column = match.groups()
    return False, file, int(line), int(column), problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value in effect."""

    #: Such as ``bus.url``.
    path: str
    #: Secrets are masked.
    value: object
    #: ``default``, ``argument``, a preset, a file with line and column, or a variable.
    origin: str


def describe(settings: Settings) -> list[Setting]:
    """Return all values in effect, in the order of the example file."""
    return [
        Setting(
            path=dotted(keys),
            value=_mask(value),
            origin=settings.origins.get(dotted(keys), "default"),
        )
        for keys, value in leaves(settings)
    ]


def _mask(value: object) -> object:
    """Return a value as plain data, without secrets."""
    match value:
        case SecretStr():
            url = value.get_secret_value()
            return mask_urls(url) if "://" in url else MASK
        case Path():
            return str(value)
        case BaseModel():
            return value.model_dump(mode="json", exclude_none=True)
        case tuple():
            return [_mask(item) for item in value]
        case _:
            return value
