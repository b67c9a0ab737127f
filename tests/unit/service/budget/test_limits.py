import pytest

from service.budget.limits import MODELS, ModelLimits, model_limits, window
from service.errors import InvalidRequestError

GPT5 = "gpt-5"


@pytest.mark.parametrize(
    ("model", "start"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini", "gpt-5"),
        ("gpt-5.1", "gpt-5"),
        ("gpt-4", "gpt-4"),
        ("gpt-4o-mini", "gpt-4o"),
        ("gpt-4.1-nano", "gpt-4.1"),
        ("gpt-4-turbo-2024-04-09", "gpt-4-turbo"),
        ("o3-mini", "o3"),
        ("claude-4-5-sonnet", "claude"),
        ("gemini-2.5-flash-lite", "gemini"),
    ],
)
def test_known_models(model: str, start: str) -> None:
    """A model has the limits of the longest known start of its name."""
    assert model_limits(model) is MODELS[start]


@pytest.mark.parametrize("model", [None, "", "gpt-50", "gpt", "llama-3", "GPT-5", "my-gpt-5"])
def test_unknown_models(model: str | None) -> None:
    """A name that only looks like a known one is not known."""
    assert model_limits(model) is None


def test_configured_models() -> None:
    """The configuration adds models and replaces known ones."""
    own = {"llama-3": ModelLimits(max_input=8_000), "gpt-5-mini": ModelLimits(max_input=9_000)}

    assert model_limits("llama-3-70b", own) is own["llama-3"]
    assert model_limits("gpt-5-mini", own) is own["gpt-5-mini"]
    assert model_limits("gpt-5", own) is MODELS["gpt-5"]


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
    room = window(model, model_limits(model), max_tokens, reserve)

    assert (room.limit, room.available, room.reserve) == (limit, available, limit - available)
    assert room.warnings == ()


def test_no_more_than_the_model_takes() -> None:
    """A limit above a known model's is lowered to that, with a warning."""
    room = window(GPT5, model_limits(GPT5), 300_000, None)

    assert (room.limit, room.available) == (272_000, 217_600)
    assert [code for code, _ in room.warnings] == ["limit_lowered"]
    assert "gpt-5 takes 272000" in room.warnings[0][1]


@pytest.mark.parametrize(
    ("max_tokens", "limit", "available"), [(None, 100_000, 80_000), (5_000, 5_000, 4_000)]
)
def test_unknown_models_are_warned_of(max_tokens: int | None, limit: int, available: int) -> None:
    """For a model that is not known the limit asked for is taken, else 100,000."""
    room = window("llama-3", None, max_tokens, None)

    assert (room.limit, room.available) == (limit, available)
    assert [code for code, _ in room.warnings] == ["unknown_model"]
    assert f"{limit} tokens" in room.warnings[0][1]


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
    with pytest.raises(InvalidRequestError, match=told):
        window(model, model_limits(model), max_tokens, reserve)


def test_a_limit_too_small_to_share_leaves_nothing_and_is_no_mistake() -> None:
    """No reserve was asked for; that nothing fits is for the budget to say."""
    assert window(None, None, 1, None).available == 0
