"""How a `ContextManager` fits a conversation (NEXUS3's settings and defaults)."""

from dataclasses import dataclass, field
from types import UnionType
from typing import Final, Literal

from service.budget.groups import Strategy
from service.budget.strategy_names import read_strategy
from service.recall.ranking import RANKING_STRATEGIES

#: Where date and time are inserted.
DatetimeIn = Literal["message", "system"]

_DATETIME_IN: Final = ("message", "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When a conversation is summarised, and how much of it is kept. Raises `ValueError`."""

    enabled: bool = True
    #: The share of the available tokens above which a conversation should be summarised.
    trigger: float = 0.9
    #: The share of the available tokens for all summaries together.
    summary_budget_ratio: float = 0.25
    #: The share of the available tokens for the newest messages, which are kept.
    recent_preserve_ratio: float = 0.25

    def __post_init__(self) -> None:
        for name in ("trigger", "summary_budget_ratio", "recent_preserve_ratio"):
            share = getattr(self, name)
            if not (_is_number(share, int | float) and 0 <= share <= 1):
                raise ValueError(f"{name} has to be a number between 0 and 1, not {share!r}")


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """Limits in tokens, and a strategy. Raises `ValueError`, also for unknown strategies."""

    #: The window of the model, including its answer.
    max_tokens: int = 8000
    #: The part of it that is reserved for the answer.
    reserve_tokens: int = 2000
    #: The name of a strategy; `service.budget.strategies` has the table of them.
    truncation_strategy: str = "oldest_first"
    #: In the newest user message, where prompts stay cacheable, or in the system prompt.
    datetime_in: DatetimeIn = "message"
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    #: Begin each tool result with a line about its call: ``[#1: search(q="x")]``.
    correlate_results: bool = False

    def __post_init__(self) -> None:
        for name in ("max_tokens", "reserve_tokens"):
            tokens = getattr(self, name)
            if not _is_number(tokens, int):
                raise ValueError(f"{name} has to be a whole number, not {tokens!r}")
        if self.max_tokens < 1:
            raise ValueError("max_tokens has to be at least 1")
        if not 0 <= self.reserve_tokens <= self.max_tokens:
            raise ValueError("reserve_tokens has to lie between 0 and max_tokens")
        if self.datetime_in not in _DATETIME_IN:
            raise ValueError(f"datetime_in has to be one of {', '.join(_DATETIME_IN)}")
        if not isinstance(self.compaction, CompactionConfig):
            raise ValueError("compaction has to be a CompactionConfig")  # noqa: TRY004 - as all here
        read_strategy(self.truncation_strategy, RANKING_STRATEGIES)

    @property
    def available(self) -> int:
        """Return the tokens available to a context."""
        return self.max_tokens - self.reserve_tokens

    @property
    def strategy(self) -> Strategy:
        """Return the strategy of the name ``truncation_strategy``."""
        return read_strategy(self.truncation_strategy, RANKING_STRATEGIES)


def _is_number(value: object, kind: type | UnionType) -> bool:
    """Return whether a value is a number of this type; to Python, True is a number too."""
    return isinstance(value, kind) and not isinstance(value, bool)
