"""Presets: what they set, and what takes precedence over them."""

from collections.abc import Callable

import pytest
import yaml

from service.config.load import describe, load_settings
from service.config.presets import DESCRIPTIONS, PRESETS, is_chosen
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
    assert (settings.memory.tool_results, plain.memory.tool_results) == ("printed", "recalled")
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
def test_what_is_set_takes_precedence_over_a_preset(given: dict[str, object]) -> None:
    """Key by key; a strategy with its parameters is one."""
    settings = Settings.model_validate({"preset": "recall", **given})

    assert (settings.memory.limit, settings.memory.header) == (5, "still")
    assert settings.budget.strategy == {"name": "relevance"}


def test_sources_take_precedence_over_a_preset_and_are_reported(
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
    """In a variable alone; another one replaces all of a preset's."""
    monkeypatch.setenv("CTXB_PRESET", "recall")
    monkeypatch.setenv("CTXB_BUDGET__STRATEGY", text)

    settings = load_settings()

    assert settings.budget.strategy == yaml.safe_load(text)
    reported = [
        each.origin for each in describe(settings) if each.path.startswith("budget.strategy")
    ]
    assert set(reported) == {"CTXB_BUDGET__STRATEGY"}


def test_every_preset_is_described() -> None:
    """Commands name each of them with what it does."""
    assert DESCRIPTIONS.keys() == PRESETS.keys()


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        ([], False),
        (["bus.url", "budget.model", "memory.message_chars"], False),
        (["preset"], True),
        (["budget.strategy"], True),
        (["budget.strategy.name"], True),
        (["memory.limit"], True),
    ],
)
def test_what_a_preset_sets_may_be_chosen_without_one(paths: list[str], chosen: bool) -> None:
    """Then presets are not mentioned."""
    assert is_chosen(paths) is chosen
