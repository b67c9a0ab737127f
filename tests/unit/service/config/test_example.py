"""The example file is the reference of all settings."""

from pathlib import Path

import yaml

from service.config.load import describe, load_settings
from service.config.settings import Settings

EXAMPLE = Path(__file__).parents[4] / "config.example.yml"


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
