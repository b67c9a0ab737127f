"""What all strategies over a caller's own messages can be asked (neuron-context, SPADE_LLM)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Protocol

from formatters.model import Row
from service.budget.groups import Strategy
from service.budget.heuristic import HeuristicTokenCounter
from service.conversation.shapes import in_blocks
from service.conversation.units import Units, read_units

#: The budget for strategies that are told to act: what they do doesn't depend on tokens.
_ANYTHING_IS_TOO_MUCH: Final = 0


class MessageCounter(Protocol):
    """Estimates what messages cost."""

    def estimate_messages(self, messages: Sequence[Row]) -> int:
        """Return the tokens of messages whose calls and results stand in typed blocks."""
        ...


DEFAULT_COUNTER: Final = HeuristicTokenCounter()


class ContextStrategy(ABC):
    """Says when messages are too many, and leaves out or shortens some.

    Messages are mappings: OpenAI's chat messages, rows of history, or messages of blocks or parts.
    They are never changed; those that stay as they are, are the same objects in the result.
    """

    #: The name of its rule, for statistics.
    name: str
    #: Above so many tokens it asks to act; None for never.
    max_tokens: int | None = None
    #: At most so many messages stay, system messages not counted; None where it does not count.
    most: int | None = None
    counter: MessageCounter = DEFAULT_COUNTER

    @abstractmethod
    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        """Return the messages that stay, without the system prompt, in their order.

        ``system_prompt`` stands for the caller's bookkeeping; no strategy counts it.
        """

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return the messages that stay, whether or not they were too many."""
        return self.apply_context_strategy(messages)

    def should_compact(
        self,
        messages: Sequence[Row],  # noqa: ARG002 - the source's signature
        token_count: int,
    ) -> bool:
        """Tell whether so many tokens are more than ``max_tokens``."""
        return self.max_tokens is not None and token_count > self.max_tokens

    def token_estimate(self, messages: Sequence[Row]) -> int:
        """Return the tokens of messages, by this strategy's counter."""
        return self.counter.estimate_messages([in_blocks(row) for row in messages])

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Say how many of so many messages stay at most, and how many go at least."""
        kept = total_messages if self.most is None else min(total_messages, self.most)
        return {
            "strategy": self.name,
            "total_messages": total_messages,
            "messages_in_context": kept,
            "messages_dropped": total_messages - kept,
        }


class GroupStrategy(ContextStrategy):
    """Lets a strategy of the engine choose among atomic units.

    A call and its results stay or go together, system messages stay, and so does the newest
    message of the user.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        most: int | None = None,
        max_tokens: int | None = None,
        counter: MessageCounter = DEFAULT_COUNTER,
    ) -> None:
        self.name = strategy.name
        self.most = most
        self.max_tokens = max_tokens
        self.counter = counter
        self._strategy = strategy

    def apply_context_strategy(
        self,
        messages: Sequence[Row],
        system_prompt: str | None = None,  # noqa: ARG002 - the source's signature
    ) -> list[Row]:
        """Return the messages that the strategy keeps."""
        units = self._units(messages)
        groups = units.groups(lambda row: self.token_estimate((row,)))
        return units.rows(self._strategy.fit(groups, _ANYTHING_IS_TOO_MUCH).kept)

    def _units(self, messages: Sequence[Row]) -> Units:
        return read_units(messages)
