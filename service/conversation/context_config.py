"""How a `ContextManager` fits a conversation (NEXUS3's settings and defaults)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from service.budget.groups import Strategy, check_count, check_share
from service.budget.strategy_names import read_strategy
from service.errors import explain_call, not_among, shown
from service.recall.ranking import RANKING_STRATEGIES

C = TypeVar("C")

DEFAULT_RESERVE: Final = 2000


def _explain_init(usage: str, *, positional: int) -> Callable[[type[C]], type[C]]:
    """Return a decorator of a class whose `TypeError` for other arguments has the usage."""

    def decorate(cls: type[C]) -> type[C]:
        cls.__init__ = explain_call(usage, positional=positional)(cls.__init__)  # type: ignore[method-assign] # made by dataclass
        return cls

    return decorate


@_explain_init("CompactionConfig(enabled=…, trigger=…)", positional=1)
@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When a conversation is summarised, and how much of it is kept. Raises `ValueError`."""

    enabled: bool = True
    #: The share of the available tokens above which a conversation should be summarised.
    trigger: float = 0.9
    #: The share of the tokens that messages may use for all summaries together.
    summary_budget_ratio: float = 0.25
    #: The share of these tokens for the newest messages, which are kept.
    recent_preserve_ratio: float = 0.25

    def __post_init__(self) -> None:
        for name in ("trigger", "summary_budget_ratio", "recent_preserve_ratio"):
            check_share(name, getattr(self, name))


@_explain_init("ContextConfig(max_tokens=…, reserve_tokens=…)", positional=8)
@dataclass(frozen=True, slots=True)
class ContextConfig:
    """Limits in tokens, and a strategy. Raises `ValueError` for invalid values."""

    #: The window of the model, including its answer.
    max_tokens: int = 8000
    #: The part of it that is reserved for the answer.
    reserve_tokens: int = DEFAULT_RESERVE
    #: The name of a strategy; `service.budget.strategies` has the table of them.
    truncation_strategy: str = "oldest_first"
    #: In the newest user message, where prompts stay cacheable, or in the system prompt.
    datetime_in: Literal["message", "system"] = "message"
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    #: Begin each tool result with a line about its call: ``[#1: search(q="x")]``.
    correlate_results: bool = False
    #: Break the special tokens of chat templates in messages and tools. Without it they are sent
    #: byte for byte.
    role_marks: bool = True

    def __post_init__(self) -> None:
        check_count("max_tokens", self.max_tokens, least=1)
        check_count("reserve_tokens", self.reserve_tokens)
        if self.reserve_tokens > self.max_tokens:
            default = " by default" if self.reserve_tokens == DEFAULT_RESERVE else ""
            raise ValueError(
                f"reserve_tokens, {self.reserve_tokens}{default}, exceeds max_tokens, "
                f"{self.max_tokens}: pass a smaller one, such as {self.max_tokens // 4}"
            )
        if self.datetime_in not in ("message", "system"):
            found = not_among(self.datetime_in, "'message' 'system'")
            raise ValueError(f"datetime_in has to be message or system{found}")
        if not isinstance(self.compaction, CompactionConfig):
            found = shown(self.compaction)
            raise ValueError(f"compaction has to be a CompactionConfig, not {found}")  # noqa: TRY004 - as all here
        _ = self.strategy  # raises for an unknown name

    @property
    def available(self) -> int:
        """Return the tokens available to a context."""
        return self.max_tokens - self.reserve_tokens

    @property
    def strategy(self) -> Strategy:
        """Return the strategy of the name ``truncation_strategy``."""
        return read_strategy(self.truncation_strategy, RANKING_STRATEGIES)
