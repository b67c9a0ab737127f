"""How many tokens a model takes, and how many of them a context may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from service.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a model takes."""

    #: Tokens of input at most.
    max_input: int
    tokenizer: str = "o200k_base"
    #: False where the tokenizer only estimates what the model counts.
    exact: bool = True


#: Input limits by the start of the model's name, as the vendors' pages gave them in November 2026.
#: The vendors of the estimated ones publish no tokenizer.
MODELS: Final[Mapping[str, ModelLimits]] = {
    "gpt-5": ModelLimits(max_input=272_000),
    "gpt-4.1": ModelLimits(max_input=1_047_576),
    "gpt-4o": ModelLimits(max_input=128_000),
    "gpt-4-turbo": ModelLimits(max_input=128_000, tokenizer="cl100k_base"),
    "gpt-4": ModelLimits(max_input=8_192, tokenizer="cl100k_base"),
    "gpt-3.5-turbo": ModelLimits(max_input=16_385, tokenizer="cl100k_base"),
    "o3": ModelLimits(max_input=200_000),
    "o4-mini": ModelLimits(max_input=200_000),
    "claude": ModelLimits(max_input=200_000, exact=False),
    "gemini": ModelLimits(max_input=1_048_576, exact=False),
}

#: The limit taken for a model that is not in the table.
UNKNOWN_MODEL_LIMIT: Final = 100_000
#: Limit and reserve where neither a model nor a limit is given (the source system's defaults).
DEFAULT_LIMIT: Final = 8_000
DEFAULT_RESERVE: Final = 2_000
#: The share of a limit that a context may use where no reserve is set.
USABLE_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A model's window as one build uses it, in tokens."""

    limit: int
    available: int
    #: Code and sentence of what the caller should know.
    warnings: tuple[tuple[str, str], ...] = field(default=())

    @property
    def reserve(self) -> int:
        """Return what is kept free."""
        return self.limit - self.available


def model_limits(
    model: str | None, overrides: Mapping[str, ModelLimits] | None = None
) -> ModelLimits | None:
    """Return a model's limits by the longest start of its name that is known, or None."""
    if model is None:
        return None
    known = {**MODELS, **(overrides or {})}
    starts = (name for name in known if model == name or model.startswith((f"{name}-", f"{name}.")))
    longest = max(starts, key=len, default=None)
    return known[longest] if longest else None


def window(
    model: str | None, limits: ModelLimits | None, max_tokens: int | None, reserve: int | None
) -> Window:
    """Return the window for a model with these ``limits`` (None: unknown), and what it leaves.

    Raises:
        InvalidRequestError: The reserve leaves nothing.
    """
    warnings: list[tuple[str, str]] = []
    if model is None and max_tokens is None:
        limit, reserve = DEFAULT_LIMIT, DEFAULT_RESERVE if reserve is None else reserve
    elif limits is None:
        limit = max_tokens or UNKNOWN_MODEL_LIMIT
        if model is not None:
            taken = f"the limit of {model!r} is not known; {limit} tokens are taken for it"
            warnings.append(("unknown_model", taken))
    else:
        limit = min(max_tokens or limits.max_input, limits.max_input)
        if max_tokens and max_tokens > limit:
            warnings.append(("limit_lowered", f"{model} takes {limit} tokens at most"))
    if reserve is not None and reserve >= limit:
        raise InvalidRequestError(f"a reserve of {reserve} tokens leaves nothing of {limit}")
    available = int(limit * USABLE_SHARE) if reserve is None else limit - reserve
    return Window(limit=limit, available=available, warnings=tuple(warnings))
