"""An empty working directory without variables of ours, for every test of configuration."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from service.config.load import load_settings
from service.errors import ConfigError


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder and without the variables of the user."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.upper().startswith("CTXB_"):
            monkeypatch.delenv(name)


@pytest.fixture
def write() -> Callable[[str], object]:
    """Give a function that writes ``config.yml``."""
    return lambda text: Path("config.yml").write_text(text, encoding="utf-8")


@pytest.fixture
def problems() -> Callable[..., list[str]]:
    """Give a function that loads the settings, with these arguments, and returns the problems."""

    def raised(**overrides: object) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_settings(None, **overrides)
        return str(caught.value).splitlines()

    return raised
