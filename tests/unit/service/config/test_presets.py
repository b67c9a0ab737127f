"""Presets: what they set, and what goes before them."""

from collections.abc import Callable

import pytest
import yaml

from service.config.load import describe, load_settings
from service.config.presets import PRESETS
from service.config.settings import BudgetSettings, MemorySettings, Settings

Write = Callable[[str], object]


def test_the_default_is_the_classic_one() -> None:
    """It sets nothing: the defaults are the source document's."""
    assert Settings(preset="classic") == Settings()
    assert (Settings().budget.strategy, Settings().memory.limit) == ("oldest_first", 20)
    assert Settings().memory.header == "counted"


def test_a_preset_sets_defaults() -> None:
    """Those that it names, and no others."""
    settings = Settings(preset="recall")
    plain = Settings()

    assert settings.budget.strategy == PRESETS["recall"]["budget"]["strategy"]
    assert (settings.memory.limit, settings.memory.header) == (None, "still")
    assert settings.memory.message_chars == plain.memory.message_chars
    assert settings.bus == plain.bus


@pytest.mark.parametrize(
    "given",
    [
        {"memory": {"limit": 5}, "budget": {"strategy": {"name": "relevance"}}},
        {
            "memory": MemorySettings(limit=5),
            "budget": BudgetSettings(strategy={"name": "relevance"}),
        },
    ],
)
def test_what_is_set_goes_before_a_preset(given: dict[str, object]) -> None:
    """Key by key; a strategy with its parameters is one."""
    settings = Settings.model_validate({"preset": "recall", **given})

    assert (settings.memory.limit, settings.memory.header) == (5, "still")
    assert settings.budget.strategy == {"name": "relevance"}


def test_sources_go_before_a_preset_and_are_told(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sets is shown as its own."""
    write("preset: recall\nmemory: {message_chars: null}\n")
    monkeypatch.setenv("CTXB_MEMORY__HEADER", "counted")
    found = {each.path: (each.value, each.origin) for each in describe(load_settings())}

    assert found["preset"] == ("recall", "config.yml:1:1")
    assert found["memory.limit"] == (None, "preset recall")
    assert found["memory.header"] == ("counted", "CTXB_MEMORY__HEADER")
    assert found["memory.message_chars"][0] is None
    assert found["budget.strategy.name"] == ("relevance", "preset recall")


@pytest.mark.parametrize("text", ['{"name": "window_size", "max_messages": 6}', '["none"]', "none"])
def test_a_strategy_may_be_written_as_json(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a variable, where there is nothing else; another one replaces all of a preset's."""
    monkeypatch.setenv("CTXB_PRESET", "recall")
    monkeypatch.setenv("CTXB_BUDGET__STRATEGY", text)

    settings = load_settings()

    assert settings.budget.strategy == yaml.safe_load(text)
    told = [each.origin for each in describe(settings) if each.path.startswith("budget.strategy")]
    assert set(told) == {"CTXB_BUDGET__STRATEGY"}
