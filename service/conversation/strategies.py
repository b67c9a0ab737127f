"""neuron-context's strategy that asks a model for a summary of all but the newest messages."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Protocol

from formatters.model import Row
from service.budget.estimates import HeuristicTokenCounter
from service.budget.groups import Group, Strategy
from service.budget.strategies.none import KeepAll
from service.budget.strategies.smart_window import SmartWindow
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.window_size import SlidingWindow, WindowSize
from service.conversation.compaction import Summarizes
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


class NoContextManagement(GroupStrategy):
    """Keep all messages, mended where no model's API would take them."""

    def __init__(self) -> None:
        super().__init__(KeepAll())


class WindowSizeContext(GroupStrategy):
    """Keep the newest ``max_messages`` messages; system messages stay and are not counted."""

    def __init__(self, max_messages: int = 20) -> None:
        super().__init__(WindowSize(max_messages=max_messages), most=max_messages)
        self.max_messages = max_messages

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Say how many of so many messages stay at most, and under which settings."""
        return {**super().get_stats(total_messages), "max_messages": self.max_messages}


class SmartWindowSizeContext(GroupStrategy):
    """Keep the first ``preserve_initial`` of ``max_messages`` messages, and the newest of the rest.

    With ``prioritize_tools``, calls and their results go before other messages. A group that does
    not go in whole is passed over. System messages stay and are not counted.
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
        super().__init__(window, most=max_messages)
        self.name = "smart_window_size"  # SPADE_LLM's name, in statistics
        self._window = window

    def get_stats(self, total_messages: int) -> dict[str, object]:
        """Say how many of so many messages stay at most, and under which settings."""
        return {
            **super().get_stats(total_messages),
            "max_messages": self._window.max_messages,
            "preserve_initial": self._window.preserve_initial,
            "prioritize_tools": self._window.prioritize_tools,
        }


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


#: Stands above a summary, by the source.
PREFIX: Final = "[Summary of earlier conversation]"

#: Tokens of a summary at most, by the source.
SUMMARY_TOKENS: Final = 1024


class SummarizationStrategy(ContextStrategy):
    """Put a summary in the place of all but the newest ``preserve_recent`` messages.

    System messages stay, ahead of it. ``provider`` is a `service.ports.services.Summarizer`, and
    what it raises comes through. Messages that open with ``prefix``, before all others, are earlier
    summaries and stay; a summary that is no shorter than what it stands for is thrown away. Asks
    to act above ``max_tokens``.
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
        """Return all messages: a summary has to be waited for."""
        return read_units(messages).all_rows()

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return system messages, summaries, and the newest messages."""
        units = read_units(messages).hoisted()
        groups = units.groups(lambda row: self.token_estimate((row,)))
        earlier = self._earlier(groups)
        rest = groups[len(earlier) :]
        kept = {group.index for group in self._window.fit(rest, 0).kept}
        old = [group for group in rest if group.index not in kept]
        if not old:
            return units.all_rows()
        text = await self._provider.summarize(
            [message for group in old for message in group.messages], max_tokens=SUMMARY_TOKENS
        )
        summary = {"role": "user", "content": f"{self._prefix}\n{text}"}
        if not self._gains(text, summary, old):
            return units.all_rows()
        ahead = units.rows(earlier)
        recent = units.rows([*earlier, *(group for group in rest if group.index in kept)])
        return [*ahead, summary, *recent[len(ahead) :]]

    def _gains(self, text: str, summary: Row, old: Sequence[Group]) -> bool:
        shorter = self.token_estimate((summary,)) < sum(group.tokens for group in old)
        return bool(text.strip()) and shorter

    def _earlier(self, groups: Sequence[Group]) -> list[Group]:
        """Return the summaries that the conversation opens with."""
        earlier: list[Group] = []
        for group in groups:
            (message, *_) = group.messages
            if not message.content.startswith(f"{self._prefix}\n"):
                break
            earlier.append(group)
        return earlier
