"""Limits: which model has which, and what a window leaves."""

import pytest

from service.budget.limits import SEED_LIMITS, ModelLimits, compute_window, lookup
from service.errors import InvalidRequestError

GPT5 = "gpt-5"

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
    """A factor stands in the name, so that usage tells of it."""
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


def limits_of(model: str | None) -> ModelLimits | None:
    """Return the limits of a model that may not be named."""
    return lookup(model, MODELS) if model else None


@pytest.mark.parametrize(
    ("model", "max_tokens", "reserve", "limit", "available"),
    [
        (None, None, None, 8_000, 6_000),
        (None, None, 0, 8_000, 8_000),
        (None, None, 500, 8_000, 7_500),
        (None, 8_000, None, 8_000, 6_400),
        (None, 8_000, 2_000, 8_000, 6_000),
        (None, 8_000, 0, 8_000, 8_000),
        (None, 999, None, 999, 799),
        (GPT5, None, None, 272_000, 217_600),
        (GPT5, None, 2_000, 272_000, 270_000),
        (GPT5, None, 0, 272_000, 272_000),
        (GPT5, 8_000, None, 8_000, 6_400),
        (GPT5, 8_000, 7_999, 8_000, 1),
        (GPT5, 272_000, 0, 272_000, 272_000),
    ],
)
def test_windows(
    model: str | None, max_tokens: int | None, reserve: int | None, limit: int, available: int
) -> None:
    """Limit and reserve are those asked for, else the model's limit and a fifth of it."""
    room = compute_window(model, limits_of(model), max_tokens, reserve)

    assert (room.limit, room.available, room.reserve) == (limit, available, limit - available)
    assert room.warnings == ()


def test_no_more_than_the_model_takes() -> None:
    """A limit above a known model's is lowered to that, with a warning."""
    room = compute_window(GPT5, limits_of(GPT5), 300_000, None)

    assert (room.limit, room.available) == (272_000, 217_600)
    assert [code for code, _ in room.warnings] == ["limit_lowered"]
    assert "gpt-5 accepts 272000" in room.warnings[0][1]


@pytest.mark.parametrize(
    ("max_tokens", "limit", "available"), [(None, 100_000, 80_000), (5_000, 5_000, 4_000)]
)
@pytest.mark.parametrize("limits", [None, MODELS["claude"]])
def test_unknown_models_are_warned_of(
    limits: ModelLimits | None, max_tokens: int | None, limit: int, available: int
) -> None:
    """For a model whose limit is not known the limit asked for is taken, else 100,000."""
    room = compute_window("llama-3", limits, max_tokens, None)

    assert (room.limit, room.available) == (limit, available)
    assert [code for code, _ in room.warnings] == ["unknown_model"]
    assert room.warnings[0][1] == (
        f"the limit of 'llama-3' is not known; {limit} tokens are assumed"
    )


@pytest.mark.parametrize(
    ("model", "max_tokens", "reserve", "told"),
    [
        (None, None, 8_000, "8000 tokens leaves nothing of 8000"),
        (None, 100, 101, "101 tokens leaves nothing of 100"),
        (GPT5, None, 300_000, "300000 tokens leaves nothing of 272000"),
    ],
)
def test_nothing_left(
    model: str | None, max_tokens: int | None, reserve: int | None, told: str
) -> None:
    """A reserve that leaves nothing is refused, with both numbers."""
    with pytest.raises(InvalidRequestError, match=f"^a reserve of {told}$"):
        compute_window(model, limits_of(model), max_tokens, reserve)


def test_a_limit_too_small_to_share_leaves_nothing_and_is_no_mistake() -> None:
    """No reserve was asked for; that nothing fits is for the budget to say."""
    assert compute_window(None, None, 1, None).available == 0
