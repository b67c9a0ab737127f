"""The probe of a worker."""

import os
import time
from pathlib import Path

import pytest

from service.cli.healthcheck import (
    ENV_FILE_VARIABLE,
    FILE_VARIABLE,
    HEALTHY,
    MAX_AGE,
    UNHEALTHY,
    probe,
)
from service.config.load import load_settings


def _beat(age: float) -> None:
    Path("beat").touch()
    then = time.time() - age
    os.utime("beat", (then, then))


def test_a_fresh_heartbeat_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was touched lately means a worker that reads; it may be named by a variable."""
    _beat(MAX_AGE / 2)
    assert probe(["--file", "beat"]) == HEALTHY
    monkeypatch.setenv(FILE_VARIABLE, "beat")
    assert probe([]) == HEALTHY


def test_an_old_heartbeat_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker that hasn't read for too long is unhealthy, and it is said since when."""
    _beat(MAX_AGE * 2)
    assert probe(["--file", "beat"]) == UNHEALTHY
    assert "last heartbeat 60 s ago" in capsys.readouterr().err
    assert probe(["--file", "beat", "--max-age", "3600"]) == HEALTHY


@pytest.mark.parametrize(
    ("arguments", "cause"), [([], FILE_VARIABLE), (["--file", "none"], "No such file")]
)
def test_a_missing_file_is_unhealthy(
    arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a file there is no sign of life, and the cause is said."""
    assert probe(arguments) == UNHEALTHY
    assert cause in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "{}=beat",
        "{}=old\n{}=beat\nOTHER=x",
        "  export {} = 'beat'  # ours",
        '{}="beat"\r',
        "\ufeff{}=beat # ours",
        "#{}=old\n{}=beat",
    ],
)
def test_the_env_file_is_read_as_settings_are(line: str) -> None:
    """The worker and its probe find the same file in .env."""
    _beat(0)
    Path(".env").write_text(line.replace("{}", FILE_VARIABLE), encoding="utf-8")
    assert load_settings().worker.heartbeat_file == Path("beat")
    assert probe([]) == HEALTHY


def test_the_env_file_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe reads the .env file that the worker reads."""
    _beat(0)
    Path("other.env").write_text(f"{FILE_VARIABLE}=beat")
    monkeypatch.setenv(ENV_FILE_VARIABLE, "other.env")
    assert load_settings().worker.heartbeat_file == Path("beat")
    assert probe([]) == HEALTHY


def test_the_environment_takes_precedence_over_the_env_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable counts more than the .env file, unless it is empty; null is no file."""
    _beat(0)
    Path(".env").write_text(f"{FILE_VARIABLE}=beat")
    for value, health in (("", HEALTHY), ("none", UNHEALTHY), ("null", UNHEALTHY)):
        monkeypatch.setenv(FILE_VARIABLE, value)
        assert probe([]) == health


def test_a_missing_env_file_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A .env file that is named has to be there, unless the heartbeat is named otherwise."""
    _beat(0)
    monkeypatch.setenv(ENV_FILE_VARIABLE, "missing.env")
    assert probe([]) == UNHEALTHY
    assert "missing.env: No such file" in capsys.readouterr().err
    assert probe(["--file", "beat"]) == HEALTHY


def test_the_settings_file_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    """A heartbeat that only config.yml names has to be given to the probe, as its help says."""
    _beat(0)
    Path("config.yml").write_text("worker: {heartbeat_file: beat}")
    assert probe([]) == UNHEALTHY
    assert "--file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        probe(["--help"])
    assert "config.yml is not read" in " ".join(capsys.readouterr().out.split())
