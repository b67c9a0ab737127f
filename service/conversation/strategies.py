"""neuron-context's and SPADE_LLM's strategies, over a caller's own messages."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Protocol

from formatters.model import Row
from service.budget.estimates import HeuristicTokenCounter
from service.budget.groups import Group, Strategy
from service.budget.strategies.none import KeepAll
from service.budget.strategies.smart_window import SmartWindow
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.window_size import SlidingWindow, WindowSize
from service.conversation.compaction import Summarizes
from service.conversation.shapes import to_blocks
from service.conversation.units import Units, read_units

#: The budget for strategies that act on numbers of messages, whatever their tokens.
_NO_BUDGET: Final = 0


class MessageCounter(Protocol):
    """Estimates the tokens of messages."""

    def estimate_messages(self, messages: Sequence[Row]) -> int:
        """Return the tokens of messages whose calls and results are typed blocks."""
        ...


DEFAULT_COUNTER: Final = HeuristicTokenCounter()


class ContextStrategy(ABC):
    """Decides whether messages are too many, and drops or shortens some.

    Messages are mappings: OpenAI's chat messages, rows of history, or messages of blocks or parts.
    They are never changed; those that are kept as they are, are the same objects in the result.
    """

    #: For statistics.
    name: str
    #: `should_compact` is true above this; None for never.
    max_tokens: int | None = None
    #: Most messages that are kept, not counting system messages; None if there is no such limit.
    max_kept: int | None = None
    counter: MessageCounter = DEFAULT_COUNTER

    @abstractmethod
    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        """Return the messages that are kept, without the system prompt, in their order.

        ``system_prompt`` is part of the source's signature; no strategy counts it.
        """

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return the messages that are kept, whether or not they were too many."""
        return self.apply_context_strategy(messages)

    def should_compact(
        self,
        messages: Sequence[Row],  # noqa: ARG002 - the source's signature
        token_count: int,
    ) -> bool:
        """Return whether a token count exceeds ``max_tokens``."""
        return self.max_tokens is not None and token_count > self.max_tokens

    def token_estimate(self, messages: Sequence[Row]) -> int:
        """Return the tokens of messages by this strategy's counter."""
        return self.counter.estimate_messages([to_blocks(row) for row in messages])

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Return how many messages are kept at most, and how many are dropped at least."""
        kept = total_messages if self.max_kept is None else min(total_messages, self.max_kept)
        return {
            "strategy": self.name,
            "total_messages": total_messages,
            "messages_in_context": kept,
            "messages_dropped": total_messages - kept,
        }


class GroupStrategy(ContextStrategy):
    """Applies an engine strategy to atomic units.

    A call is kept or dropped with its results. System messages and the user's newest message are
    always kept.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        max_kept: int | None = None,
        max_tokens: int | None = None,
        counter: MessageCounter = DEFAULT_COUNTER,
    ) -> None:
        self.name = strategy.name
        self.max_kept = max_kept
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
        return units.rows(self._strategy.fit(groups, _NO_BUDGET).kept)

    def _units(self, messages: Sequence[Row]) -> Units:
        return read_units(messages)


class NoContextManagement(GroupStrategy):
    """Keep all messages, repaired where no model's API would accept them."""

    def __init__(self) -> None:
        super().__init__(KeepAll())


class WindowSizeContext(GroupStrategy):
    """Keep the newest ``max_messages`` messages, and all system messages besides."""

    def __init__(self, max_messages: int = 20) -> None:
        super().__init__(WindowSize(max_messages=max_messages), max_kept=max_messages)
        self.max_messages = max_messages

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Return how many messages are kept at most, and the settings."""
        return {**super().get_stats(total_messages), "max_messages": self.max_messages}


class SmartWindowSizeContext(GroupStrategy):
    """Keep the first ``preserve_initial`` of ``max_messages`` messages, and the newest of the rest.

    With ``prioritize_tools``, calls and their results take precedence over other messages. A group
    that does not fit whole is skipped. System messages are kept and not counted.
    """

    def __init__(
        self,
        max_messages: int = 20,
        preserve_initial: int = 0,
        prioritize_tools: bool = False,
    ) -> None:
        window = SmartWindow(
            max_messages=max_messages,
            preserve_initial=preserve_initial,
            prioritize_tools=prioritize_tools,
        )
        super().__init__(window, max_kept=max_messages)
        self.name = "smart_window_size"  # SPADE_LLM's name, in statistics
        self._window = window

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Return how many messages are kept at most, and the settings."""
        return {
            **super().get_stats(total_messages),
            "max_messages": self._window.max_messages,
            "preserve_initial": self._window.preserve_initial,
            "prioritize_tools": self._window.prioritize_tools,
        }


class SlidingWindowStrategy(GroupStrategy):
    """Keep the newest ``window_size`` messages, and all system messages before them.

    A window of 0 keeps only system messages. Acts above ``max_tokens``.
    """

    def __init__(
        self, window_size: int, max_tokens: int, counter: MessageCounter = DEFAULT_COUNTER
    ) -> None:
        window = SlidingWindow(window_size=window_size)
        super().__init__(window, max_kept=window_size, max_tokens=max_tokens, counter=counter)

    def _units(self, messages: Sequence[Row]) -> Units:
        return super()._units(messages).instructions_first()


class ToolResultClearingStrategy(GroupStrategy):
    """Replace all tool results but the newest ``keep_recent_n`` with ``[tool result cleared]``.

    No message is dropped, and ids are kept. Acts above ``max_tokens``.
    """

    def __init__(
        self, keep_recent_n: int, max_tokens: int, counter: MessageCounter = DEFAULT_COUNTER
    ) -> None:
        clearing = ToolResultClearing(keep_recent_n=keep_recent_n)
        super().__init__(clearing, max_tokens=max_tokens, counter=counter)


class Compacts(Protocol):
    """The one method of a strategy that a composite needs."""

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return the messages that are kept."""
        ...


class CompositeStrategy(ContextStrategy):
    """Apply strategies in turn, until the messages have at most ``max_tokens``.

    The tokens are those of its own counter; limits of the strategies are ignored. Calls and
    results are always repaired.
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
        """Return the messages that are kept."""
        kept = read_units(messages).all_rows()
        for strategy in self._strategies:
            if not self.should_compact(kept, self.token_estimate(kept)):
                break
            kept = await strategy.compact(kept)
        return kept

    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        """Return the messages that are kept; strategies that can only ``compact`` are skipped."""
        kept = read_units(messages).all_rows()
        for strategy in self._strategies:
            if not self.should_compact(kept, self.token_estimate(kept)):
                break
            if isinstance(strategy, ContextStrategy):
                kept = strategy.apply_context_strategy(kept, system_prompt)
        return kept


#: The line above a summary, by the source.
PREFIX: Final = "[Summary of earlier conversation]"

#: Most tokens of a summary, by the source.
SUMMARY_TOKENS: Final = 1024


class SummarizationStrategy(ContextStrategy):
    """Replace all but the newest ``preserve_recent`` messages with a summary.

    System messages are kept, before it. ``provider`` is a `service.ports.services.Summarizer`,
    whose errors are passed on. Messages at the start that begin with ``prefix`` are earlier
    summaries and are kept. A summary that is no shorter than the messages is discarded. Acts above
    ``max_tokens``.
    """

    name = "summarization"

    def __init__(
        self,
        provider: Summarizes,
        preserve_recent: int,
        max_tokens: int,
        counter: MessageCounter = DEFAULT_COUNTER,
        *,
        prefix: str = PREFIX,
    ) -> None:
        self.max_tokens = max_tokens
        self.counter = counter
        self._provider = provider
        self._window = SlidingWindow(window_size=preserve_recent)
        self._prefix = prefix

    def apply_context_strategy(
        self,
        messages: Sequence[Row],
        system_prompt: str | None = None,  # noqa: ARG002 - the source's signature
    ) -> list[Row]:
        """Return all messages: only `compact` can wait for a summary."""
        return read_units(messages).all_rows()

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return system messages, summaries, and the newest messages."""
        units = read_units(messages).instructions_first()
        groups = units.groups(lambda row: self.token_estimate((row,)))
        earlier = [*takewhile(self._is_summary, groups)]
        others = groups[len(earlier) :]
        recent = self._window.fit(others, _NO_BUDGET).kept
        kept = {group.index for group in recent}
        old = [group for group in others if group.index not in kept]
        if not old:
            return units.all_rows()
        text = await self._provider.summarize(
            [message for group in old for message in group.messages], max_tokens=SUMMARY_TOKENS
        )
        summary = {"role": "user", "content": f"{self._prefix}\n{text}"}
        is_shorter = self.token_estimate((summary,)) < sum(group.tokens for group in old)
        if not text.strip() or not is_shorter:
            return units.all_rows()
        return units.rows_with(summary, others[0].index, [*earlier, *recent])

    def _is_summary(self, group: Group) -> bool:
        return group.messages[0].content.startswith(f"{self._prefix}\n")
