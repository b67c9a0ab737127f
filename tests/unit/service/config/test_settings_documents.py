"""The example, a file of settings to begin with, and the schema by which editors check one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from service.config.load import describe, load_settings
from service.config.paths import leaves
from service.config.settings import Settings
from service.config.settings_documents import EXAMPLE, comments, config_schema, template

ROOT = Path(__file__).parents[4]


VALIDATOR = Draft202012Validator(config_schema())


def wrong(text: str) -> list[str]:
    """Return the places at which a file breaks the schema."""
    return [error.json_path for error in VALIDATOR.iter_errors(yaml.safe_load(text))]


def test_packages_hold_the_same_example() -> None:
    """`make reference` copies it: the folder above the packages is in none of them."""
    assert EXAMPLE.read_bytes() == (ROOT / "config.example.yml").read_bytes()


def test_a_new_file_sets_nothing(tmp_path: Path) -> None:
    """Every value is its default, and the preset is not overruled."""
    file = tmp_path / "config.yml"
    file.write_text(template())
    assert {each.origin for each in describe(load_settings(file))} <= {"default", "preset classic"}


def test_a_new_file_for_recall_sets_it_and_a_small_system_message(tmp_path: Path) -> None:
    """And only these."""
    file = tmp_path / "config.yml"
    file.write_text(template("recall"))
    settings = load_settings(file)
    origins = settings.origins.items()
    own = {path for path, origin in origins if origin.startswith(str(file))}
    found = {each.path: each.value for each in describe(settings) if each.path in own}
    assert found == {
        "preset": "recall",
        "prompts.identity": "plain",
        "prompts.capabilities": "names",
    }


def test_without_its_marks_a_new_file_is_the_example() -> None:
    """Each setting is there, to be switched on by taking one character away."""
    switched_on = re.sub(r"^( *)#(?=\w)", r"\1", template(), flags=re.MULTILINE)
    example = EXAMPLE.read_text()
    assert yaml.safe_load(switched_on) == yaml.safe_load(example)
    assert len(re.findall(r"^ *#\w", template(), flags=re.MULTILINE)) == len(describe(Settings()))


def test_each_setting_is_explained() -> None:
    """By the comment in the example, or that of its neighbour above."""
    said = comments()
    assert said[("bus", "prefix")].startswith("Prefix of every topic and key")
    assert said[("bus", "tls", "key_file")] == said[("bus", "tls", "cert_file")]
    assert said[("preset",)].splitlines()[1].startswith("  budget: ")  # an example stays set in
    assert said.keys() >= {keys for keys, _ in leaves(Settings()) if keys[0] != "user_defaults"}
    assert ("bus",) not in said


def test_the_schema_is_one() -> None:
    """By its own schema; and what it describes is ours, word for word."""
    Draft202012Validator.check_schema(config_schema())
    assert config_schema()["properties"]["preset"]["description"] == comments()[("preset",)]


@pytest.mark.parametrize("text", [template, EXAMPLE.read_text])
def test_the_schema_takes_our_own_files(text: Callable[[], str]) -> None:
    """The example, and what `ctxb config init` writes."""
    assert wrong(text()) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"bus": {"url": "${URL}", "lease_seconds": "${LEASE:-5}"}},
        {"http": {"content": "${CONTENT}", "build": "${BUILD}", "port": "${PORT}"}},
        {"budget": {"strategy": {"name": "window_size", "max_messages": 6}}},
        {"memory": {"history_context_size": 3}},
        {"tools": {"mcp": [{"name": "git", "command": "uvx", "args": ["a"]}]}},
        {"store": None},
    ],
)
def test_the_schema_takes_what_the_service_takes(settings: dict[str, Any]) -> None:
    """Variables in place of values, other names, sections that are empty."""
    assert wrong(yaml.safe_dump(settings)) == []


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"bust": {}}, "$"),
        ({"bus": {"lease_seconds": "soon"}}, "$.bus"),
        ({"bus": {"lease_seconds": 0}}, "$.bus"),
        ({"http": {"content": "all"}}, "$.http"),
        ({"http": {"contents": "full"}}, "$.http"),
        ({"tools": {"mcp": [{"label": "git"}]}}, "$.tools"),
    ],
)
def test_the_schema_refuses_mistakes(settings: dict[str, Any], place: str) -> None:
    """Names that are none, and values of the wrong kind."""
    assert wrong(yaml.safe_dump(settings)) == [place]


def test_the_example_holds_the_defaults() -> None:
    """config.example.yml names every key, in the order of the model, with its default."""
    settings = load_settings(EXAMPLE)
    assert settings.model_dump() == Settings().model_dump()
    assert [entry.path for entry in describe(settings) if entry.origin == "default"] == []


def test_the_example_is_in_order() -> None:
    """The example has the order in which settings are shown."""

    def paths(node: object, path: str = "") -> list[str]:
        if isinstance(node, dict) and node:
            return [leaf for key, below in node.items() for leaf in paths(below, f"{path}.{key}")]
        return [path.removeprefix(".")]

    written = paths(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
    assert written == [setting.path for setting in describe(Settings())]
