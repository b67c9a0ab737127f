"""Settings from a YAML file, each with its line and column."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from service.config.layers import Layer
from service.config.paths import Keys, dotted
from service.errors import ConfigError

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
    return Layer(values=values or {}, places=reader.places, problems=reader.problems).renamed()


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
