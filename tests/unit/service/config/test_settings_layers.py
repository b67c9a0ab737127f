"""Outdated settings are no errors: those renamed are read, those removed are ignored."""

from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from service.config.load import load_settings
from service.config.paths import dotted, leaves
from service.config.settings import Settings
from service.config.settings_documents import config_schema
from service.config.settings_layers import ALIASES, REMOVED, RENAMED

#: Writes ``config.yml`` into the working directory of the test.
Write = Callable[[str], object]

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a setting and a section that never were."""
    monkeypatch.setitem(REMOVED, "bus.wheels", "Set bus.url instead.")
    monkeypatch.setitem(REMOVED, "gears", "There is no successor.")


def test_removed_settings_are_ignored_in_every_source(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a warning that has its location and names the successor."""
    write("bus:\n  wheels: 4\n  max_backlog: 7\ngears:\n  forward: 5\n")
    Path(".env").write_text("CTXB_GEARS='{\"back\": 1}'\n")
    monkeypatch.setenv("CTXB_BUS__WHEELS", "3")
    monkeypatch.setenv("CTXB_GEARS__FORWARD", "6")
    settings = load_settings(bus={"wheels": 2})
    assert settings.model_dump() == load_settings(Path("config.yml")).model_dump()
    assert settings.bus.max_backlog == 7
    assert settings.warnings == (
        "argument bus.wheels: is ignored. Set bus.url instead.",
        "CTXB_BUS__WHEELS  bus.wheels: is ignored. Set bus.url instead.",
        "CTXB_GEARS__FORWARD  gears: is ignored. There is no successor.",
        ".env: CTXB_GEARS  gears: is ignored. There is no successor.",
        "config.yml:2:3  bus.wheels: is ignored. Set bus.url instead.",
        "config.yml:4:1  gears: is ignored. There is no successor.",
    )


def test_a_removed_setting_in_a_section_that_is_json_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable may set a whole section."""
    monkeypatch.setenv("CTXB_BUS", '{"wheels": 4, "max_backlog": 7}')
    settings = load_settings()
    assert settings.bus.max_backlog == 7
    assert settings.warnings == ("CTXB_BUS  bus.wheels: is ignored. Set bus.url instead.",)


def test_renamed_settings_are_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a warning; the new name takes precedence, so that one file serves two versions."""
    write("bus:\n  socket_timeout: 3\n")
    settings = load_settings()
    assert settings.bus.socket_timeout_seconds == 3
    assert settings.origins == {"bus.socket_timeout_seconds": "config.yml:2:3"}
    assert settings.warnings == (
        "config.yml:2:3  bus.socket_timeout: is called bus.socket_timeout_seconds now",
    )
    monkeypatch.setenv("CTXB_BUS__SOCKET_TIMEOUT_SECONDS", "4")
    assert load_settings().bus.socket_timeout_seconds == 4
    monkeypatch.delenv("CTXB_BUS__SOCKET_TIMEOUT_SECONDS")
    write("bus:\n  socket_timeout: 3\n  socket_timeout_seconds: 5\n")
    settings = load_settings()
    assert settings.bus.socket_timeout_seconds == 5
    assert settings.warnings == (
        "config.yml:2:3  bus.socket_timeout: is ignored, since bus.socket_timeout_seconds is set",
    )


def test_manifests_that_were_off_leave_reports_off(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of manifests have the same meaning for the reports that replace them."""
    monkeypatch.setenv("CTXB_MANIFESTS__TTL_SECONDS", "0")
    write("manifests: {max_bytes: 5000, other: 1}")
    settings = load_settings()
    assert (settings.reports.ttl_seconds, settings.reports.max_bytes) == (0, 5000)
    assert len(settings.warnings) == 3


def test_a_setting_can_move_to_another_section(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left of a section that all settings have moved out of."""
    monkeypatch.setitem(RENAMED, "pace.gait.speed", "bus.max_backlog")
    write("pace: {gait: {speed: 3}}\nbus:\n")
    settings = load_settings()
    assert settings.bus.max_backlog == 3
    assert settings.origins == {"bus.max_backlog": "config.yml:1:15"}
    monkeypatch.setenv("CTXB_PACE__GAIT__SPEED", "4")
    assert load_settings().bus.max_backlog == 4
    schema = Draft202012Validator(config_schema())
    assert schema.is_valid({"pace": {"gait": {"speed": 3}}})


def test_current_settings_give_no_warnings(write: Write) -> None:
    """Nor do names of the source systems, which are supported for good."""
    write("memory: {history_context_size: 3}")
    assert load_settings().warnings == ()


def test_outdated_names_are_no_settings() -> None:
    """And what they point to is one."""
    known = {dotted(keys) for keys, _ in leaves(Settings())}
    sections = {".".join(name.split(".")[:n]) for name in known for n in range(1, 5)}
    assert not sections & {*ALIASES, *RENAMED, *REMOVED}
    assert {*ALIASES.values(), *RENAMED.values()} <= known


def test_the_schema_marks_outdated_settings() -> None:
    """Editors show them as deprecated, but don't refuse them."""
    schema = config_schema()
    bus = schema["$defs"]["BusSettings"]["properties"]
    assert bus["wheels"] == {"deprecated": True, "description": "Set bus.url instead."}
    assert bus["socket_timeout"]["deprecated"] is True
    assert "deprecated" not in bus["socket_timeout_seconds"]
    settings = {"gears": {"forward": 5}, "bus": {"socket_timeout": 3}}
    assert Draft202012Validator(schema).is_valid(settings)
