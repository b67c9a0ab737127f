"""How many tokens a model accepts, and how many of them a context may use."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from service.budget.estimates import counter_name
from service.errors import InvalidRequestError, shown

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

#: The limit for a model that is not in the table.
UNKNOWN_MODEL_LIMIT: Final = 100_000
#: Limit and reserve if neither a model nor a limit is given (the source system's defaults).
DEFAULT_LIMIT: Final = 8_000
DEFAULT_RESERVE: Final = 2_000
#: The share of a limit that a context may use if no reserve is set.
USABLE_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The context window of a build, in tokens."""

    limit: int
    available: int
    #: Code and sentence of each warning for the caller.
    warnings: tuple[tuple[str, str], ...] = field(default=())

    @property
    def reserve(self) -> int:
        """Return the tokens that are kept free."""
        return self.limit - self.available


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
        for prefix in _prefixes(form):
            if prefix in names:
                return prefix
    return None


def _prefixes(name: str) -> Iterator[str]:
    """Yield the name and its prefixes that end at a boundary, the longest first."""
    yield name
    for index in reversed(range(len(name))):
        if name[index] in BOUNDARIES:
            yield name[:index]


def compute_window(
    model: str | None, limits: ModelLimits | None, max_tokens: int | None, reserve: int | None
) -> Window:
    """Return the window of a model with these ``limits`` (None if unknown).

    Raises:
        InvalidRequestError: The reserve leaves nothing.
    """
    warnings: list[tuple[str, str]] = []
    known = limits.max_input if limits else None
    if model is None and max_tokens is None:
        limit, reserve = DEFAULT_LIMIT, DEFAULT_RESERVE if reserve is None else reserve
    elif known is None:
        limit = max_tokens or UNKNOWN_MODEL_LIMIT
        if model is not None:
            detail = f"the limit of {shown(model)} is not known; {limit} tokens are assumed"
            warnings.append(("unknown_model", detail))
    else:
        limit = min(max_tokens or known, known)
        if max_tokens and max_tokens > limit:
            warnings.append(("limit_lowered", f"{model} accepts {limit} tokens at most"))
    if reserve is not None and reserve >= limit:
        raise InvalidRequestError(f"a reserve of {reserve} tokens leaves nothing of {limit}")
    available = int(limit * USABLE_SHARE) if reserve is None else limit - reserve
    return Window(limit=limit, available=available, warnings=tuple(warnings))
