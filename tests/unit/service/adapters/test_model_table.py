"""The shipped table of models."""

from datetime import date

import pytest

from service.adapters.model_table import load_models
from service.budget.limits import lookup

TABLE = load_models()


@pytest.mark.parametrize(
    ("model", "max_input", "counter", "exact"),
    [
        ("gpt-5", 272_000, "o200k_base", True),
        ("gpt-5-mini-2025-08-07", 272_000, "o200k_base", True),
        ("gpt-5.5-2026-04-23", 922_000, "o200k_base", True),
        ("gpt-4.1", 1_047_576, "o200k_base", True),
        ("gpt-4o-mini", 128_000, "o200k_base", True),
        ("gpt-4-turbo-2024-04-09", 128_000, "cl100k_base", True),
        ("gpt-4", 8_192, "cl100k_base", True),
        ("gpt-3.5-turbo", 16_385, "cl100k_base", True),
        ("o3-mini", 200_000, "o200k_base", True),
        ("gpt-oss-120b", 131_072, "o200k_base", True),
        ("claude-sonnet-4-5-20250929", 200_000, "o200k_base*1.25", False),
        ("anthropic/claude-opus-5-5", 1_000_000, "o200k_base*1.5", False),
        ("gemini-2.5-flash-lite", 1_048_576, "o200k_base*1.25", False),
        ("deepseek-chat", 131_072, "o200k_base*1.1", False),
        ("meta-llama/Llama-3.3-70B-Instruct", 131_072, "o200k_base*1.05", False),
        ("qwen3-max", 258_048, "o200k_base*1.15", False),
        ("claude-of-tomorrow", None, "o200k_base*1.5", False),
    ],
)
def test_models_that_people_name(
    model: str, max_input: int | None, counter: str, exact: bool
) -> None:
    """They have the input limit of their vendor, and OpenAI's alone are counted exactly."""
    limits = lookup(model, TABLE.models)

    assert limits is not None
    assert (limits.max_input, limits.counter, limits.exact) == (max_input, counter, exact)


def test_outputs_are_known_where_the_source_knows_them() -> None:
    """The limit of an answer is next to that of the input."""
    assert TABLE.models["gpt-5"].max_output == 128_000
    assert TABLE.models["claude-opus-5"].max_output == 128_000
    assert TABLE.models["grok-4.5"].max_output is None


def test_the_table_says_where_it_is_from() -> None:
    """It has a day and a source, and names no model in two ways."""
    assert date.fromisoformat(TABLE.date).year >= 2026
    assert TABLE.source.startswith("litellm ")
    assert all(name == name.lower() for name in TABLE.models)


def test_what_is_exact_is_not_raised() -> None:
    """A factor belongs to estimates."""
    assert all(limits.factor == 1 for limits in TABLE.models.values() if limits.exact)
    assert all(limits.factor >= 1 for limits in TABLE.models.values())
