"""Settings from variables: those of the process, and those of a ``.env`` file."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource
from pydantic_settings.sources.utils import parse_env_vars

from service.config.layers import Layer
from service.config.paths import Keys, leaves
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
