"""neuron-context's strategies: asked between turns, they act when told to.

The one that asks a model for a summary is `service.conversation.summarization`.
"""

from collections.abc import Sequence
from typing import Protocol

from formatters.model import Row
from service.budget.strategies.sliding_window import SlidingWindow
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.conversation.strategy import (
    DEFAULT_COUNTER,
    ContextStrategy,
    GroupStrategy,
    MessageCounter,
)
from service.conversation.units import Units, read_units


class SlidingWindowStrategy(GroupStrategy):
    """Keep the newest ``window_size`` messages, and all system messages ahead of them.

    A window of 0 keeps system messages alone. Asks to act above ``max_tokens``.
    """

    def __init__(
        self, window_size: int, max_tokens: int, counter: MessageCounter = DEFAULT_COUNTER
    ) -> None:
        window = SlidingWindow(window_size=window_size)
        super().__init__(window, most=window_size, max_tokens=max_tokens, counter=counter)

    def _units(self, messages: Sequence[Row]) -> Units:
        return super()._units(messages).hoisted()


class ToolResultClearingStrategy(GroupStrategy):
    """Replace all tool results but the newest ``keep_recent_n`` by ``[tool result cleared]``.

    No message goes, and ids stay. Asks to act above ``max_tokens``.
    """

    def __init__(
        self, keep_recent_n: int, max_tokens: int, counter: MessageCounter = DEFAULT_COUNTER
    ) -> None:
        clearing = ToolResultClearing(keep_recent_n=keep_recent_n)
        super().__init__(clearing, max_tokens=max_tokens, counter=counter)


class Compacts(Protocol):
    """All that a composite asks of its strategies; they need no base class."""

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return the messages that stay."""
        ...


class CompositeStrategy(ContextStrategy):
    """Let each strategy act on what the one before it left, until that has ``max_tokens`` or less.

    The tokens are those of its own counter, and limits of the strategies don't matter. Calls and
    results are mended in any case.
    """

    name = "composite"

    def __init__(
        self,
        strategies: Sequence[Compacts],
        max_tokens: int,
        counter: MessageCounter = DEFAULT_COUNTER,
    ) -> None:
        self.max_tokens = max_tokens
        self.counter = counter
        self._strategies = tuple(strategies)

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return the messages that stay."""
        left = read_units(messages).all_rows()
        for strategy in self._strategies:
            if not self.should_compact(left, self.token_estimate(left)):
                break
            left = await strategy.compact(left)
        return left

    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        """Return the messages that stay; what can only ``compact`` is passed over."""
        left = read_units(messages).all_rows()
        for strategy in self._strategies:
            if not self.should_compact(left, self.token_estimate(left)):
                break
            if isinstance(strategy, ContextStrategy):
                left = strategy.apply_context_strategy(left, system_prompt)
        return left
