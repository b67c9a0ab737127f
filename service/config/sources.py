"""The sources of settings: environment variables, ``.env`` files and YAML files."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Final

import yaml
from dotenv import dotenv_values
from dotenv.parser import parse_stream

from service.config.paths import Keys, dotted, is_nested, leaves
from service.config.settings import Settings
from service.config.settings_layers import Layer, has_section, replace_outdated, set_value
from service.errors import ConfigError, did_you_mean

PREFIX: Final = "CTXB_"

#: These name the YAML file and the .env file, and are no settings themselves.
CONFIG_VARIABLE: Final = "CTXB_CONFIG"
ENV_FILE_VARIABLE: Final = "CTXB_ENV_FILE"
NO_SETTINGS: Final = (CONFIG_VARIABLE, ENV_FILE_VARIABLE)


def read_env_file(name: str | None) -> tuple[str, dict[str, str]]:
    """Return the name and the variables of a .env file: the one named, else ``.env``.

    Both are empty if no file is named and there is no ``.env``. Raises `ConfigError` if the file
    can't be read.
    """
    path = Path(name or ".env")
    if not name and not path.is_file():
        return "", {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        named = f"; {ENV_FILE_VARIABLE} names it" if name else ""
        raise ConfigError(f"{path}: cannot be read: {error}{named}") from error
    for line in parse_stream(StringIO(text)):
        # lines of other programs are their own affair
        if line.value is None and PREFIX in line.original.string.partition("#")[0].upper():
            name = line.key or f"{PREFIX}…"
            raise ConfigError(f"{path}:{line.original.line}: has no value; write {name}=value")
    variables = dotenv_values(stream=StringIO(text))
    return str(path), {name: value for name, value in variables.items() if value is not None}


def variables_layer(variables: Mapping[str, str], file: str = "") -> Layer:
    """Return the layer of the variables that begin with the prefix.

    An empty variable counts as unset, and ``null`` is None. Lists and whole sections are JSON.
    ``file`` is the file that holds the variables, if they are not from the environment.
    """
    layer = Layer()
    # shortest first: a variable of a section precedes those of its settings
    for name in sorted(variables, key=len):
        value = variables[name]
        is_setting = name.upper().startswith(PREFIX) and name.upper() not in NO_SETTINGS
        if not value or not is_setting:
            continue
        location = f"{file}: {name}" if file else name
        keys = tuple(name[len(PREFIX) :].lower().split("__"))
        if has_section(keys[0]):
            layer.locations[keys] = location
            set_value(layer.values, keys, _parse(value, keys))
        elif (suggestion := _suggest_name(keys)) or len(keys) > 1:
            layer.problems.append(f"{location}: unknown variable{suggestion}")
    return replace_outdated(layer)


def _parse(value: str, keys: Keys) -> object:
    if value == "null":
        return None
    if not is_nested(keys):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # validation reports it, with the name of the variable
        return value


def _suggest_name(keys: Keys) -> str:
    # Kubernetes adds variables of its own, such as CTXB_PORT, which never have two underscores.
    # A name without two is a mistake only if it is a setting's but for an underscore.
    known = {"_".join(path): "__".join(path) for path, _ in leaves(Settings())}
    cutoff = 0.7 if len(keys) > 1 else 1.0
    return did_you_mean("_".join(keys), known, lambda name: PREFIX + known[name].upper(), cutoff)


def yaml_layer(path: Path, variables: Mapping[str, str], named_by: str = "") -> Layer:
    """Return the layer of a YAML file; ``named_by`` is the variable that names it, if one does.

    In values, ``${NAME}`` is replaced by a variable, ``${NAME:-default}`` by the default if the
    variable is unset or empty, and ``$$`` by a dollar sign. Raises `ConfigError` if the file can't
    be read or isn't YAML; what is wrong with single values is in the layer's problems.
    """
    reader = _YamlReader(str(path), variables)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
        values = None if root is None else reader.read(root, ())
    except (OSError, UnicodeDecodeError) as error:
        named = f"; {named_by} names it" if named_by else ""
        raise ConfigError(f"{path}: cannot be read: {error}{named}") from error
    except yaml.MarkedYAMLError as error:
        where = reader.location(error.problem_mark) if error.problem_mark else path
        # the error itself quotes lines of the file, which may hold a password
        raise ConfigError(f"{where}  {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no usable YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}:1:1  must hold keys and values")
    layer = Layer(values=values or {}, locations=reader.locations, problems=reader.problems)
    return replace_outdated(layer)


_REFERENCE: Final = re.compile(
    r"""\$(?:
        (?P<dollar>\$)
        | \{ (?P<name>[A-Za-z_]\w*) (?: :- (?P<default>[^}]*) )? \}
        | (?P<malformed>\{)
    )""",
    re.VERBOSE | re.ASCII,
)


class _YamlReader:
    """Converts YAML nodes to values, and records the location of each."""

    def __init__(self, file: str, variables: Mapping[str, str]) -> None:
        self.locations: dict[Keys, str] = {}
        self.problems: list[str] = []
        self._file = file
        self._variables = variables
        self._scalars = yaml.SafeLoader("")

    def read(self, node: yaml.Node, keys: Keys) -> object:
        """Return the value of a node; raises `ValueError` for a scalar that can't be used."""
        match node:
            case yaml.MappingNode():
                # keys are read as written: `on` and `1` are text here
                pairs = [(str(key.value), key, value) for key, value in node.value]
                return dict(self._read_children(pairs, keys))
            case yaml.SequenceNode():
                items = [(str(index), item, item) for index, item in enumerate(node.value)]
                return [value for _, value in self._read_children(items, keys)]
            case _:
                return self._read_scalar(node)

    def location(self, mark: yaml.Mark) -> str:
        """Return a location as editors and compilers write it."""
        return f"{self._file}:{mark.line + 1}:{mark.column + 1}"

    def _read_children(
        self, children: Iterable[tuple[str, yaml.Node, yaml.Node]], parents: Keys
    ) -> Iterator[tuple[str, object]]:
        """Yield the key and value of each child, given its key, the node to locate and its node."""
        seen: set[str] = set()
        for key, located, node in children:
            keys, location = (*parents, key), self.location(located.start_mark)
            if key in seen:
                self.problems.append(f"{location}  {dotted(keys)}: is given twice")
            seen.add(key)
            self.locations[keys] = location
            try:
                yield key, self.read(node, keys)
            except ValueError as error:
                self.problems.append(f"{location}  {dotted(keys)}: {error}")

    def _read_scalar(self, node: yaml.Node) -> object:
        text = _REFERENCE.sub(self._substitute, node.value)
        if text == node.value:
            return self._scalars.construct_object(node)
        # validation parses other types from text, but not null
        plain = node.style is None  # type: ignore[attr-defined]  # missing in the stubs
        return None if plain and text in {"", "~", "null"} else text

    def _substitute(self, reference: re.Match[str]) -> str:
        if reference["dollar"]:
            return "$"
        if reference["malformed"]:
            raise ValueError("'${' needs a variable's name and '}'; '$${' gives the characters")
        value = self._variables.get(reference["name"])
        if reference["default"] is not None:
            return value or reference["default"]
        if value is None:
            raise ValueError(f"the variable {reference['name']} is not set")
        return value
