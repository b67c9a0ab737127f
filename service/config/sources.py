"""Where settings come from: environment variables, ``.env`` files and YAML files."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import yaml
from dotenv import dotenv_values

from service.config.layers import REMOVED, Layer, set_value, update
from service.config.paths import Keys, dotted, holds_values, leaves, type_at
from service.config.settings import Settings
from service.errors import ConfigError

PREFIX = "CTXB_"

#: Name the YAML file and the .env file; no settings themselves.
CONFIG_VARIABLE = "CTXB_CONFIG"
ENV_FILE_VARIABLE = "CTXB_ENV_FILE"


def env_file(named: str | None) -> tuple[str, dict[str, str]]:
    """Return the name and the variables of the file named, else of ``.env`` if there is one.

    Raises `ConfigError` where a named file cannot be read.
    """
    path = Path(named or ".env")
    if not named and not path.is_file():
        return "", {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            found = dotenv_values(stream=stream)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return str(path), {name: value for name, value in found.items() if value is not None}


def variables_layer(variables: Mapping[str, str], file: str = "") -> Layer:
    """Return the layer of the variables that begin with the prefix.

    An empty variable counts as unset, and ``null`` is None. Lists and whole sections are JSON.
    ``file`` is the file that holds the variables, if they are not from the environment.
    """
    layer = Layer()
    # shortest first: a variable of a section precedes those of its settings
    for name in sorted(variables, key=len):
        value = variables[name]
        if not value or not _is_setting(name):
            continue
        location = f"{file}: {name}" if file else name
        keys = tuple(name[len(PREFIX) :].lower().split("__"))
        if keys[0] in Settings.model_fields or keys[0] in REMOVED:
            layer.locations[keys] = location
            set_value(layer.values, keys, _parse(value, keys))
        elif len(keys) > 1 or _similar(keys):
            layer.problems.append(f"{location}: unknown variable{_suggestion(keys)}")
    return update(layer)


def _is_setting(name: str) -> bool:
    upper = name.upper()
    return upper.startswith(PREFIX) and upper not in {CONFIG_VARIABLE, ENV_FILE_VARIABLE}


def _parse(value: str, keys: Keys) -> object:
    if value == "null":
        return None
    if not holds_values(type_at(keys)):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # validation reports it, with the name of the variable
        return value


def _similar(keys: Keys) -> list[str]:
    # Kubernetes adds variables of its own, such as CTXB_PORT, which never have two underscores.
    # A name without two is a mistake only if it is a setting's but for an underscore.
    known = {"_".join(path): "__".join(path) for path, _ in leaves(Settings())}
    close = get_close_matches("_".join(keys), known, n=1, cutoff=0.7 if len(keys) > 1 else 1.0)
    return [PREFIX + known[name].upper() for name in close]


def _suggestion(keys: Keys) -> str:
    return "".join(f"; did you mean {name}?" for name in _similar(keys))


_REFERENCE = re.compile(
    r"""\$(?:
        (?P<dollar>\$)
        | \{ (?P<name>[A-Za-z_]\w*) (?: :- (?P<default>[^}]*) )? \}
        | (?P<malformed>\{)
    )""",
    re.VERBOSE | re.ASCII,
)


def read_yaml(path: Path, variables: Mapping[str, str]) -> Layer:
    """Return the layer of a YAML file.

    In values, ``${NAME}`` is a variable, ``${NAME:-default}`` the default where it is unset or
    empty, and ``$$`` a dollar sign. Raises `ConfigError` where the file can't be read or is no
    YAML; what is wrong with single values is in the layer's problems.
    """
    reader = _Reader(str(path), variables)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
        values = None if root is None else reader.read(root, ())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        where = reader.place(error.problem_mark) if error.problem_mark else path
        # not from the error, which quotes lines of the file, and so perhaps a password
        raise ConfigError(f"{where}  {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no usable YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}:1:1  must hold keys and values")
    return update(Layer(values=values or {}, locations=reader.places, problems=reader.problems))


class _Reader:
    """Turns YAML's nodes into values, and notes where each stands."""

    def __init__(self, file: str, variables: Mapping[str, str]) -> None:
        self.places: dict[Keys, str] = {}
        self.problems: list[str] = []
        self._file = file
        self._variables = variables
        self._scalars = yaml.SafeLoader("")

    def read(self, node: yaml.Node, keys: Keys) -> object:
        """Return the value of a node; raises `ValueError` for a scalar that can't be used."""
        match node:
            case yaml.MappingNode():
                return dict(self._children(self._pairs(node), keys))
            case yaml.SequenceNode():
                items = ((str(index), item, item) for index, item in enumerate(node.value))
                return [value for _, value in self._children(items, keys)]
            case _:
                return self._scalar(node)

    def place(self, mark: yaml.Mark) -> str:
        """Return a place as editors and compilers write it."""
        return f"{self._file}:{mark.line + 1}:{mark.column + 1}"

    def _children(
        self, children: Iterable[tuple[str, yaml.Node, yaml.Node]], keys: Keys
    ) -> Iterator[tuple[str, object]]:
        seen: set[str] = set()
        for key, marked, node in children:
            below, place = (*keys, key), self.place(marked.start_mark)
            if key in seen:
                self.problems.append(f"{place}  {dotted(below)}: is given twice")
            seen.add(key)
            self.places[below] = place
            try:
                yield key, self.read(node, below)
            except ValueError as error:
                self.problems.append(f"{place}  {dotted(below)}: {error}")

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        for key, value in node.value:
            # keys are taken as they are written: `on` and `1` are text here
            yield str(key.value), key, value

    def _scalar(self, node: yaml.Node) -> object:
        text = _REFERENCE.sub(self._substitute, node.value)
        if text == node.value:
            return self._scalars.construct_object(node)
        # other types are read from text; that nothing is null has to be said
        plain = node.style is None  # type: ignore[attr-defined]  # missing in the stubs
        return None if plain and text in {"", "~", "null"} else text

    def _substitute(self, found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        if found["malformed"]:
            raise ValueError("'${' needs a variable's name and '}'; '$${' gives the characters")
        value = self._variables.get(found["name"])
        if found["default"] is not None:
            return value or found["default"]
        if value is None:
            raise ValueError(f"the variable {found['name']} is not set")
        return value
