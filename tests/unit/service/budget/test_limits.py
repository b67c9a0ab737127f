"""Limits: which model has which."""

import pytest

from service.budget.limits import SEED_LIMITS, ModelLimits, lookup

MODELS = {
    "gpt-5": ModelLimits(max_input=272_000),
    "gpt-5-pro": ModelLimits(max_input=128_000),
    "gpt-4": ModelLimits(max_input=8_192),
    "gpt-4o": ModelLimits(max_input=128_000),
    "gpt-4.1": ModelLimits(max_input=1_047_576),
    "claude": ModelLimits(max_input=None, factor=1.5, exact=False),
    "claude-haiku-4-5": ModelLimits(max_input=200_000, factor=1.25, exact=False),
}


@pytest.mark.parametrize(
    ("model", "start"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5.1", "gpt-5"),
        ("gpt-5-pro-2025-10-06", "gpt-5-pro"),
        ("gpt-5-professional", "gpt-5"),
        ("gpt-4", "gpt-4"),
        ("gpt-4o-mini", "gpt-4o"),
        ("gpt-4.1-nano", "gpt-4.1"),
        ("GPT-4.1", "gpt-4.1"),
        ("openai/gpt-5", "gpt-5"),
        ("router/openai/gpt-5-mini", "gpt-5"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5:beta", "claude-haiku-4-5"),
        ("claude-haiku-9", "claude"),
    ],
)
def test_known_models(model: str, start: str) -> None:
    """A model has the limits of the longest known start of its name, in any case."""
    assert lookup(model, MODELS) is MODELS[start]


@pytest.mark.parametrize("model", ["", "gpt-50", "gpt", "llama-3", "my-gpt-5", "gpt-5/other", "/"])
def test_unknown_models(model: str) -> None:
    """A name that only looks like a known one is not known."""
    assert lookup(model, MODELS) is None


def test_the_counter_is_named_for_what_it_does() -> None:
    """The name contains the factor, so that usage reports it."""
    assert MODELS["claude"].counter == "o200k_base*1.5"
    assert MODELS["gpt-5"].counter == "o200k_base"


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("gemini-2.5-flash", 800_000),
        ("gemini-2.5-flash-lite", 800_000),
        ("claude-4-5-sonnet", 160_000),
        ("claude-4-5-haiku", 160_000),
        ("gpt-5-2025-08-07", 102_400),
        ("default", 80_000),
    ],
)
def test_the_limits_of_the_source_are_kept(model: str, target: int) -> None:
    """Four fifths of them are the targets that REPLOID's document names."""
    assert SEED_LIMITS[model] * 4 == target * 5
