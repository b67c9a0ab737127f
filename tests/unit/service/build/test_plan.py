"""What a plan takes for a model's limits."""

import pytest

from service.budget.limits import ModelLimits
from service.build.plan import limits_of
from service.config.settings import BudgetSettings

MODELS = {
    "gpt-4": ModelLimits(max_input=8_192, max_output=4_096, tokenizer="cl100k_base"),
    "gpt-4-turbo": ModelLimits(max_input=128_000, tokenizer="cl100k_base"),
    "claude": ModelLimits(max_input=None, factor=1.5, exact=False),
    "claude-opus-5": ModelLimits(max_input=1_000_000, max_output=128_000, factor=1.5, exact=False),
}


def budget(**given: object) -> BudgetSettings:
    """Return settings."""
    return BudgetSettings.model_validate(given)


@pytest.mark.parametrize("model", ["gpt-4", "gpt-4-turbo", "claude", "claude-opus-5"])
def test_the_table_applies_where_the_settings_say_nothing(model: str) -> None:
    """Other models' rows don't matter, nor do factors for what is exact."""
    settings = budget(model_limits={"other": {"max_input": 1}}, estimate_factors={"gpt": 2})

    assert limits_of(model, MODELS, settings) is MODELS[model]


def test_a_model_that_nobody_knows_has_no_limits() -> None:
    """Neither table nor settings have a start of its name."""
    assert limits_of("llama-3", MODELS, budget()) is None


def test_a_row_of_the_settings_takes_precedence_over_the_tables() -> None:
    """What it leaves out is the table's; a longer name of the table isn't touched."""
    settings = budget(model_limits={"GPT-4": {"max_input": 5}})

    assert limits_of("gpt-4-0613", MODELS, settings) == ModelLimits(
        max_input=5, max_output=4_096, tokenizer="cl100k_base"
    )
    assert limits_of("gpt-4-turbo", MODELS, settings) is MODELS["gpt-4-turbo"]


def test_a_row_can_say_all() -> None:
    """Output, tokenizer and factor; with a factor, the counts are estimates."""
    row = {"max_input": 5, "max_output": 2, "tokenizer": "cl100k_base", "factor": 1.2}

    assert limits_of("mine-1", MODELS, budget(model_limits={"mine": row})) == ModelLimits(
        max_input=5, max_output=2, tokenizer="cl100k_base", factor=1.2, exact=False
    )


@pytest.mark.parametrize(
    ("row", "counter", "exact"),
    [
        ({}, "o200k_base*1.5", False),
        ({"tokenizer": "cl100k_base"}, "cl100k_base", True),
        ({"factor": 1.25}, "o200k_base*1.25", False),
        ({"factor": 1}, "o200k_base", False),
    ],
)
def test_who_names_a_tokenizer_vouches_for_it(
    row: dict[str, object], counter: str, exact: bool
) -> None:
    """Without one, an estimate stays an estimate."""
    settings = budget(model_limits={"claude": {"max_input": 5, **row}})
    limits = limits_of("claude-x", MODELS, settings)

    assert limits is not None
    assert (limits.max_input, limits.counter, limits.exact) == (5, counter, exact)


def test_a_row_without_a_tokenizer_is_counted_by_the_default() -> None:
    """Which is an estimate of a model that nobody knows."""
    settings = budget(model_limits={"mine": {"max_input": 5}}, tokenizer="cl100k_base")

    assert limits_of("mine", MODELS, settings) == ModelLimits(
        max_input=5, tokenizer="cl100k_base", exact=False
    )


def test_a_factor_holds_for_a_family() -> None:
    """The longest start counts, and the limits stay those of the table."""
    settings = budget(estimate_factors={"Claude": 1.3, "claude-opus": 1.4, "mystery": 1.2})
    factors = [
        (limits.max_input, limits.factor)
        for model in ("claude-3", "claude-opus-5-1", "mystery-2")
        if (limits := limits_of(model, MODELS, settings))
    ]

    assert factors == [(None, 1.3), (1_000_000, 1.4), (None, 1.2)]
