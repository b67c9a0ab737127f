"""Fill the settings in from all sources, and say where each value came from."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from service.config.layers import Layer, arguments_layer, merge, preset_layer
from service.config.paths import Keys, dotted, known_keys, leaves
from service.config.settings import Settings
from service.config.sources import (
    CONFIG_VARIABLE,
    ENV_FILE_VARIABLE,
    env_file,
    read_yaml,
    variables_layer,
)
from service.errors import ConfigError
from service.observe.logs import MASK, mask_urls

#: Read where no file is named.
DEFAULT_FILE = Path("config.yml")

#: How a problem of a YAML file begins: with the file, the line and the column.
_IN_FILE = re.compile(r"(.+?):(\d+):(\d+)  ")

#: What pydantic says in terms of Python, by its type of error.
MESSAGES = {
    "tuple_type": "must be a list; in a variable, one in JSON",
    "dict_type": "must hold keys and values; in a variable, in JSON",
    "model_type": "must hold keys and values; in a variable, in JSON",
    "missing": "is missing",
}


def load_settings(path: Path | None = None, **overrides: object) -> Settings:
    """Return the settings of this process.

    Sources, the first going before the others: the arguments; variables that begin with
    ``CTXB_``; the .env file that ``CTXB_ENV_FILE`` names, else ``.env`` in the working directory
    if there is one; the YAML file that ``path`` or ``CTXB_CONFIG`` names, else ``config.yml`` in
    the working directory if there is one; the preset; the defaults. Raises
    `ConfigError` with a line for each problem, which gives its place, in the order of their places:
    the YAML file's, then others.
    """
    environ = dict(os.environ)
    env_name, from_file = env_file(environ.get(ENV_FILE_VARIABLE))
    known = {**from_file, **environ}
    layers = [
        arguments_layer(overrides),
        variables_layer(environ),
        variables_layer(from_file, env_name),
        _yaml_layer(path, known),
    ]
    problems = [problem for layer in layers for problem in layer.problems]
    try:
        settings = Settings.model_validate(merge(layers))
    except ValidationError as error:
        problems += [_line(problem, layers) for problem in error.errors(include_url=False)]
    if problems:
        raise ConfigError("\n".join(sorted(problems, key=_order)))
    layers.append(preset_layer(settings.preset))
    origins = {dotted(keys): _place(keys, layers) for keys, _ in leaves(settings)}
    warnings = [warning for layer in layers for warning in layer.warnings]
    return settings.loaded({path: place for path, place in origins.items() if place}, warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value in effect."""

    #: Such as ``bus.url``.
    path: str
    #: Secrets are masked.
    value: object
    #: ``default``, ``argument``, a file with line and column, or a variable.
    origin: str


def describe(settings: Settings) -> list[Setting]:
    """Return all values in effect, in the order of the example file."""
    return [
        Setting(
            path=dotted(keys),
            value=_shown(value),
            origin=settings.origins.get(dotted(keys), "default"),
        )
        for keys, value in leaves(settings)
    ]


def _shown(value: object) -> object:
    match value:
        case SecretStr():
            url = value.get_secret_value()
            return mask_urls(url) if "://" in url else MASK
        case Path():
            return str(value)
        case BaseModel():
            return value.model_dump(mode="json", exclude_none=True)
        case tuple():
            return [_shown(item) for item in value]
        case _:
            return value


def _yaml_layer(path: Path | None, known: dict[str, str]) -> Layer:
    named = known.get(CONFIG_VARIABLE)
    file = path or (Path(named) if named else DEFAULT_FILE)
    if file is DEFAULT_FILE and not file.is_file():
        return Layer()
    return read_yaml(file, known)


def _place(keys: Keys, layers: Sequence[Layer]) -> str | None:
    places = (layer.location(keys) for layer in layers)
    return next((place for place in places if place is not None), None)


def _order(problem: str) -> tuple[bool, str, int, int, str]:
    found = _IN_FILE.match(problem)
    if found is None:
        return True, "", 0, 0, problem
    file, line, column = found.groups()
    return False, file, int(line), int(column), problem


def _line(problem: ErrorDetails, layers: Sequence[Layer]) -> str:
    keys = tuple(str(key) for key in problem["loc"])
    # what is missing stands nowhere: its section's place is the next best
    places = (_place(keys[:length], layers) for length in range(len(keys), 0, -1))
    place = next((f"{place}  " for place in places if place is not None), "")
    return f"{place}{dotted(keys)}: {_message(problem, keys)}"


def _message(problem: ErrorDetails, keys: Keys) -> str:
    if problem["type"] == "extra_forbidden":
        *parents, last = keys
        close = get_close_matches(last, known_keys(tuple(parents)), n=1)
        meant = [f"; did you mean {dotted((*parents, key))}?" for key in close]
        return "".join(["unknown key", *meant])
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    return MESSAGES.get(problem["type"]) or problem["msg"][:1].lower() + problem["msg"][1:]
