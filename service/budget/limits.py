"""How many tokens a model accepts, and how they are counted."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from service.budget.estimates import counter_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The token limits of a model, and how its tokens are counted."""

    #: The most tokens of input; None if only the tokenizer of the model's family is known.
    max_input: int | None
    #: The most tokens of a completion; None if unknown.
    max_output: int | None = None
    tokenizer: str = "o200k_base"
    #: The factor by which the tokenizer's counts are raised for a model of another tokenizer.
    factor: float = 1.0
    #: False if the counts are only estimates for this model.
    exact: bool = True

    @property
    def counter(self) -> str:
        """Return the name of the counter: the tokenizer, with the factor if it isn't 1."""
        return counter_name(self.tokenizer, self.factor)


#: Limits by the start of a model's name, in lower case.
Models = Mapping[str, ModelLimits]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """The table of limits that is shipped with the service."""

    #: The day on which it was taken from its source, such as 2026-11-22.
    date: str
    source: str
    models: Models


#: REPLOID's limits by the exact name of a model, for the functions that keep its names.
SEED_LIMITS: Final[Mapping[str, int]] = {
    "gemini-2.5-flash": 1_000_000,
    "gemini-2.5-flash-lite": 1_000_000,
    "claude-4-5-sonnet": 200_000,
    "claude-4-5-haiku": 200_000,
    "gpt-5-2025-08-07": 128_000,
    "gpt-5-2025-08-07-mini": 128_000,
    "default": 100_000,
}

#: Characters that may follow a known prefix of a model's name.
BOUNDARIES: Final = "-.@:"


def lookup(model: str, table: Mapping[str, T]) -> T | None:
    """Return the value of the longest prefix of a model's name in a table, or None."""
    known = longest_known_prefix(model, table)
    return None if known is None else table[known]


def longest_known_prefix(model: str, names: Container[str]) -> str | None:
    """Return the longest prefix of a model's name that is among ``names``, or None.

    ``names`` are in lower case, the model's name in any case. A router's prefix (``openai/gpt-5``)
    and that of a fine-tuned model (``ft:gpt-4o:…``) are ignored.
    """
    name = model.lower()
    bare = name.rpartition("/")[2]
    for form in (name, bare, bare.removeprefix("ft:")):
        boundaries = (index for index in reversed(range(len(form))) if form[index] in BOUNDARIES)
        for end in (len(form), *boundaries):
            if form[:end] in names:
                return form[:end]
    return None
