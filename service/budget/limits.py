"""How many tokens a model takes, and how many of them a context may use."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from service.budget.estimates import counter_name
from service.errors import InvalidRequestError, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a model takes, and how its tokens are counted."""

    #: Tokens of input at most; None where only the tokenizer of the model's family is known.
    max_input: int | None
    #: Tokens of an answer at most; None where that is not known.
    max_output: int | None = None
    tokenizer: str = "o200k_base"
    #: What the tokenizer's counts are multiplied by, for a model that it only estimates.
    factor: float = 1.0
    #: False where the tokenizer only estimates what the model counts.
    exact: bool = True

    @property
    def counter(self) -> str:
        """Return the name of the counter: the tokenizer's, and the factor's where there is one."""
        return counter_name(self.tokenizer, self.factor)


#: Limits by the start of a model's name, in lower case.
Models = Mapping[str, ModelLimits]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """The limits that come with the service."""

    #: The day on which they were taken from their source, as in 2026-11-22.
    date: str
    source: str
    models: Models


#: REPLOID's limits by the exact name of a model, for the functions that are named after its own.
SEED_LIMITS: Final[Mapping[str, int]] = {
    "gemini-2.5-flash": 1_000_000,
    "gemini-2.5-flash-lite": 1_000_000,
    "claude-4-5-sonnet": 200_000,
    "claude-4-5-haiku": 200_000,
    "gpt-5-2025-08-07": 128_000,
    "gpt-5-2025-08-07-mini": 128_000,
    "default": 100_000,
}

#: What may follow the start of a name by which a model is known.
BOUNDARIES: Final = "-.@:"

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


def lookup(model: str, table: Mapping[str, T]) -> T | None:
    """Return the value of the longest start of a model's name that a table has, or None."""
    known = longest_known_prefix(model, table)
    return None if known is None else table[known]


def longest_known_prefix(model: str, names: Container[str]) -> str | None:
    """Return the longest start of a model's name that is among others, or None.

    Those are in lower case; the model's name is read in any. What a router puts before a name
    (``openai/gpt-5``), and the mark of a fine-tuned model (``ft:gpt-4o:…``), are passed over.
    """
    name = model.lower()
    bare = name.rpartition("/")[2]
    for form in (name, bare, bare.removeprefix("ft:")):
        for start in _starts(form):
            if start in names:
                return start
    return None


def _starts(name: str) -> Iterator[str]:
    """Yield the name and what stands before each boundary in it, the longest first."""
    yield name
    for place in reversed(range(len(name))):
        if name[place] in BOUNDARIES:
            yield name[:place]


def compute_window(
    model: str | None, limits: ModelLimits | None, max_tokens: int | None, reserve: int | None
) -> Window:
    """Return the window for a model with these ``limits`` (None: unknown), and what it leaves.

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
            taken = f"the limit of {shown(model)} is not known; {limit} tokens are taken for it"
            warnings.append(("unknown_model", taken))
    else:
        limit = min(max_tokens or known, known)
        if max_tokens and max_tokens > limit:
            warnings.append(("limit_lowered", f"{model} takes {limit} tokens at most"))
    if reserve is not None and reserve >= limit:
        raise InvalidRequestError(f"a reserve of {reserve} tokens leaves nothing of {limit}")
    available = int(limit * USABLE_SHARE) if reserve is None else limit - reserve
    return Window(limit=limit, available=available, warnings=tuple(warnings))
