"""What a window leaves."""

import pytest

from service.budget.limits import ModelLimits
from service.build.plan import compute_window
from service.errors import InvalidRequestError

GPT5 = "gpt-5"

MODELS = {
    "gpt-5": ModelLimits(max_input=272_000),
    "claude": ModelLimits(max_input=None, factor=1.5, exact=False),
}


def limits_of(model: str | None) -> ModelLimits | None:
    """Return the limits of a model that may not be named."""
    return MODELS.get(model) if model else None


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
    """Limit and reserve are those requested, else the model's limit and a fifth of it."""
    room = compute_window(model, limits_of(model), max_tokens, reserve)

    assert (room.limit, room.available, room.reserve) == (limit, available, limit - available)
    assert room.warnings == ()


def test_no_more_than_the_model_takes() -> None:
    """A limit above a known model's is lowered to that, with a warning."""
    room = compute_window(GPT5, limits_of(GPT5), 300_000, None)

    assert (room.limit, room.available) == (272_000, 217_600)
    assert [warning.code for warning in room.warnings] == ["limit_lowered"]
    assert "gpt-5 accepts 272000" in room.warnings[0].detail


@pytest.mark.parametrize(
    ("max_tokens", "limit", "available"), [(None, 100_000, 80_000), (5_000, 5_000, 4_000)]
)
@pytest.mark.parametrize("limits", [None, MODELS["claude"]])
def test_unknown_models_are_warned_of(
    limits: ModelLimits | None, max_tokens: int | None, limit: int, available: int
) -> None:
    """For a model without a known limit, the requested limit is used, else 100,000."""
    room = compute_window("llama-3", limits, max_tokens, None)
    used = "the 5000 of max_tokens are used" if max_tokens else "100000 tokens are assumed"

    assert (room.limit, room.available) == (limit, available)
    assert [warning.code for warning in room.warnings] == ["unknown_model"]
    assert room.warnings[0].detail == (f"the limit of 'llama-3' is not known; {used}")


@pytest.mark.parametrize(
    ("model", "max_tokens", "reserve", "reported"),
    [
        (None, None, 8_000, "8000 tokens leaves nothing of 8000"),
        (None, 100, 101, "101 tokens leaves nothing of 100"),
        (GPT5, None, 300_000, "300000 tokens leaves nothing of 272000"),
    ],
)
def test_nothing_left(
    model: str | None, max_tokens: int | None, reserve: int | None, reported: str
) -> None:
    """A reserve that leaves nothing is refused, with both numbers and what to lower."""
    error = f"^a reserve of {reported}; lower budget\\.reserve_tokens$"
    with pytest.raises(InvalidRequestError, match=error):
        compute_window(model, limits_of(model), max_tokens, reserve)
    error = error.replace("lower", "lower reserve_tokens, by default")
    with pytest.raises(InvalidRequestError, match=error):
        compute_window(model, limits_of(model), max_tokens, reserve, "/content/context")


def test_a_limit_too_small_to_share_leaves_nothing_and_is_no_mistake() -> None:
    """No reserve was requested; that nothing fits is for the budget to say."""
    assert compute_window(None, None, 1, None).available == 0
