"""The bounds of where a worker shows how it is."""

from collections.abc import Callable

import pytest

from service.config.load import load_settings

#: Loads the settings and returns what is wrong with them.
Problems = Callable[..., list[str]]


@pytest.mark.parametrize("given", [{"port": -1}, {"port": 65_536}, {"port": "web"}, {"host": ""}])
def test_an_address_that_cannot_be_is_refused(given: dict[str, object], problems: Problems) -> None:
    """By name."""
    (line,) = problems(health=given)
    assert f"health.{next(iter(given))}" in line


def test_a_variable_can_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the word null; without it, this machine alone is answered."""
    assert (load_settings(None).health.host, load_settings(None).health.port) == ("127.0.0.1", 8765)
    monkeypatch.setenv("CTXB_HEALTH__PORT", "null")
    assert load_settings(None).health.port is None
