"""Where settings come from: environment variables, ``.env`` files and YAML files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import yaml
from dotenv import dotenv_values
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource
from pydantic_settings.sources.utils import parse_env_vars

from service.config.layers import Layer
from service.config.paths import Keys, dotted, leaves
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


def variables(found: Mapping[str, str], file: str = "") -> Layer:
    """Return the layer of those variables that begin with the prefix.

    An empty one counts as unset and ``null`` is None; lists and whole sections are written as
    JSON. ``file`` is where they stand, if not in the environment.
    """
    places: dict[Keys, str] = {}
    problems: list[str] = []
    for name in found:
        if not _is_setting(name) or not found[name]:
            continue
        place = f"{file}: {name}" if file else name
        keys = tuple(name[len(PREFIX) :].lower().split("__"))
        if keys[0] in Settings.model_fields:
            places[keys] = place
        elif len(keys) > 1 or _meant(keys):
            problems.append(f"{place}: unknown variable{_hint(keys)}")
    return Layer(values=_Variables(found)(), places=places, problems=problems).renamed()


def _is_setting(name: str) -> bool:
    upper = name.upper()
    return upper.startswith(PREFIX) and upper not in {CONFIG_VARIABLE, ENV_FILE_VARIABLE}


def _meant(keys: Keys) -> list[str]:
    # Kubernetes adds variables of its own, such as CTXB_PORT. They never have two underscores,
    # so a name without must be a setting's, but for an underscore, to count as a mistake.
    known = {"_".join(path): "__".join(path) for path, _ in leaves(Settings())}
    close = get_close_matches("_".join(keys), known, n=1, cutoff=0.7 if len(keys) > 1 else 1.0)
    return [PREFIX + known[name].upper() for name in close]


def _hint(keys: Keys) -> str:
    return "".join(f"; did you mean {name}?" for name in _meant(keys))


class _Variables(EnvSettingsSource):
    """Reads the variables handed in, rather than those of the process."""

    def __init__(self, found: Mapping[str, str]) -> None:
        self._found = found
        super().__init__(Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return parse_env_vars(
            self._found, self.case_sensitive, self.env_ignore_empty, self.env_parse_none_str
        )

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: str) -> object:
        """Leave what is no JSON to validation, whose message can name the variable."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


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
