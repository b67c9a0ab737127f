"""neuron-context's and SPADE_LLM's strategies over a caller's own messages, and the engine's."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Protocol

from typing_extensions import override

from formatters.guard import GUARD
from formatters.model import Row
from service.budget.estimates import HeuristicTokenCounter
from service.budget.groups import Fit, Group, Strategy, check_count, checked, cost
from service.budget.strategies.none import KeepAll
from service.budget.strategies.tool_result_clearing import ToolResultClearing
from service.budget.strategies.windows import SlidingWindow, SmartWindow, WindowSize
from service.budget.strategy_names import read_strategy
from service.conversation.compaction import read_answer
from service.conversation.messages import (
    create_system_message,
    is_summary,
    summary_number,
    with_summaries,
)
from service.conversation.protection import drop_excess, open_answers, pin_opener, protected_indexes
from service.conversation.shapes import to_blocks
from service.conversation.units import RowCost, Units, dropped_groups, pin_newest, read_units
from service.ports.services import Summarizer
from service.recall.ranking import RANKING_STRATEGIES

#: The budget for strategies that act on numbers of messages, not on tokens.
_NO_BUDGET: Final = 0


class MessageCounter(Protocol):
    """Estimates the tokens of messages."""

    def estimate_messages(self, messages: Sequence[Row]) -> int:
        """Return the tokens of messages whose calls and results are typed blocks."""


DEFAULT_COUNTER: Final = HeuristicTokenCounter()


class ContextStrategy(ABC):
    """Decides whether messages are too many, and drops or shortens some.

    Messages are mappings: OpenAI's chat messages, rows of history, or messages of blocks or parts.
    They are never changed; those that are kept as they are, are the same objects in the result.
    """

    name: str
    #: `should_compact` is true above this; None for never.
    max_tokens: int | None = None
    #: Most messages that are kept, not counting system messages; None if there is no such limit.
    max_kept: int | None = None
    counter: MessageCounter = DEFAULT_COUNTER
    settings: Mapping[str, object] = MappingProxyType({})

    @abstractmethod
    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        """Return the messages that are kept, without the system prompt, in their order.

        ``system_prompt`` is part of the source's signature; no strategy counts it.
        """

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Apply the strategy, and return the messages that are kept."""
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
        """Return how many messages are kept at most and dropped at least, and the settings."""
        kept = total_messages if self.max_kept is None else min(total_messages, self.max_kept)
        return {
            "strategy": self.name,
            "total_messages": total_messages,
            "messages_in_context": kept,
            "messages_dropped": total_messages - kept,
            **self.settings,
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
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        self.max_tokens = max_tokens
        self.counter = counter
        self._strategy = strategy

    @override
    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
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
    """Keep the newest ``max_messages`` messages, and all system messages."""

    def __init__(self, max_messages: int = 20) -> None:
        super().__init__(WindowSize(max_messages=max_messages), max_kept=max_messages)
        self.max_messages = max_messages
        self.settings = {"max_messages": max_messages}


class SmartWindowSizeContext(GroupStrategy):
    """Keep ``max_messages`` messages: the first ``preserve_initial``, then the newest.

    With ``prioritize_tools``, calls and their results take precedence over other messages. A group
    that does not fit whole is skipped. System messages are kept and not counted.
    """

    def __init__(
        self, max_messages: int = 20, preserve_initial: int = 0, prioritize_tools: bool = False
    ) -> None:
        window = SmartWindow(
            max_messages=max_messages,
            preserve_initial=preserve_initial,
            prioritize_tools=prioritize_tools,
        )
        super().__init__(window, max_kept=max_messages)
        self.max_messages = max_messages
        self.preserve_initial = preserve_initial
        self.prioritize_tools = prioritize_tools
        self.name = "smart_window_size"  # SPADE_LLM's name, in statistics
        self.settings = {
            "max_messages": max_messages,
            "preserve_initial": preserve_initial,
            "prioritize_tools": prioritize_tools,
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


@dataclass(eq=False)
class CompositeStrategy(ContextStrategy):
    """Apply strategies in turn, until the messages have at most ``max_tokens``.

    The tokens are those of its own counter; limits of the strategies are ignored. Calls and
    results are always repaired.
    """

    name = "composite"

    strategies: Sequence[Compacts]
    max_tokens: int
    counter: MessageCounter = DEFAULT_COUNTER

    @override
    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Apply the strategies until the messages fit, and return those that are kept."""
        kept = read_units(messages).all_rows()
        for strategy in self.strategies:
            if not self.should_compact(kept, self.token_estimate(kept)):
                break
            kept = await strategy.compact(kept)
        return kept

    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        """Return the messages that are kept; strategies that can only ``compact`` are skipped."""
        kept = read_units(messages).all_rows()
        for strategy in self.strategies:
            if not self.should_compact(kept, self.token_estimate(kept)):
                break
            if isinstance(strategy, ContextStrategy):
                kept = strategy.apply_context_strategy(kept, system_prompt)
        return kept


#: The line above a summary, by the source.
PREFIX: Final = "[Summary of earlier conversation]"

#: Most tokens of a summary, by the source.
SUMMARY_TOKENS: Final = 1024


@dataclass(eq=False)
class SummarizationStrategy(ContextStrategy):
    """Replace all but the newest ``preserve_recent`` messages with a summary.

    System messages are kept, before it. ``provider`` is a `ctxb.Summarizer`,
    whose errors are passed on. Messages at the start that begin with `PREFIX` are earlier
    summaries and are kept. A summary that is no shorter than the messages is discarded. Acts above
    ``max_tokens``.
    """

    name = "summarization"

    provider: Summarizer
    preserve_recent: int
    max_tokens: int
    counter: MessageCounter = DEFAULT_COUNTER

    def __post_init__(self) -> None:
        self._window = SlidingWindow(window_size=self.preserve_recent)

    @override
    def apply_context_strategy(
        self, messages: Sequence[Row], system_prompt: str | None = None
    ) -> list[Row]:
        return read_units(messages).all_rows()  # only `compact` can wait for a summary

    async def compact(self, messages: Sequence[Row]) -> list[Row]:
        """Return system messages, summaries, and the newest messages."""
        units = read_units(messages).instructions_first()
        groups = units.groups(lambda row: self.token_estimate((row,)))
        earlier = [*takewhile(lambda g: g.messages[0].content.startswith(f"{PREFIX}\n"), groups)]
        others = groups[len(earlier) :]
        recent = self._window.fit(others, _NO_BUDGET).kept
        old = dropped_groups(others, recent)
        if not old:
            return units.all_rows()
        summarised = [message for group in old for message in group.messages]
        text = await read_answer(self.provider.summarize(summarised, max_tokens=SUMMARY_TOKENS))
        summary = {"role": "user", "content": f"{PREFIX}\n{GUARD.quote(text)}"}
        is_shorter = self.token_estimate((summary,)) < sum(group.tokens for group in old)
        if not text.strip() or not is_shorter:
            return units.all_rows()
        return units.rows_with(summary, others[0].index, [*earlier, *recent])


# --- within a budget -------------------------------------------------------------------------

#: Decides which messages are dropped: one of the sources' classes, or an engine strategy.
Rule = ContextStrategy | Strategy


def read_rule(rule: Rule | str | Sequence[object]) -> Rule:
    """Return a strategy, given itself, or a name or list of names; raises `ValueError`."""
    if isinstance(rule, ContextStrategy) or hasattr(rule, "fit"):
        return rule  # type: ignore[return-value] # what has `fit` is a strategy of the engine
    return read_strategy(rule, RANKING_STRATEGIES)


def apply_around_summaries(strategy: ContextStrategy, rows: Sequence[Row]) -> list[Row]:
    """Return the messages that a strategy keeps, and all summaries, which it doesn't see."""
    kept = strategy.apply_context_strategy([row for row in rows if not is_summary(row)])
    return with_summaries(kept, rows)


def choose(units: Units, strategy: Strategy, budget: int, row_cost: RowCost) -> list[Row]:
    """Return the messages that fit into a budget.

    System messages, the user's newest message and what the strategy protects are kept even beyond
    it. Summaries that fit with them take precedence over all other messages, the newest over
    older ones. A strategy may describe the dropped messages in a sentence, which becomes a system
    message in their place if it fits.
    """
    summaries, groups = _split_summaries(units, units.groups(row_cost))
    if units.needs_opening:
        groups = pin_opener(groups)
    budget -= sum(row_cost(row) for row in units.rows(()))
    for shown in (summaries[oldest:] for oldest in range(len(summaries) + 1)):
        room = budget - cost(shown)
        fit = _fit(strategy, groups, room)
        if cost(fit.kept) <= room:
            break
    candidates = (*groups, *shown)
    kept = _open(units, candidates, (*fit.kept, *shown), budget)
    dropped = dropped_groups(groups, kept) if fit.summary else []
    if fit.summary is None or not dropped:
        return units.rows(kept)

    tokens = row_cost(create_system_message(fit.summary(dropped)))
    fewer = drop_excess(fit.kept, protected_indexes(groups), room - tokens)
    fewer = _open(units, candidates, (*fewer, *shown), budget - tokens)
    # the room for the sentence may have cost more messages, which it describes as well
    dropped = dropped_groups(groups, fewer)
    sentence = create_system_message(fit.summary(dropped))
    if cost(fewer) + row_cost(sentence) > budget:
        return units.rows(kept)
    return units.rows_with(sentence, dropped[0].index, fewer)


def _open(
    units: Units, groups: Sequence[Group], kept: tuple[Group, ...], budget: int
) -> tuple[Group, ...]:
    """Return what is kept so that nothing begins where its API refuses it."""
    if not units.needs_opening:
        return kept
    order = attrgetter("index")
    return open_answers(units, sorted(groups, key=order), sorted(kept, key=order), budget)


def _split_summaries(
    units: Units, groups: Sequence[Group]
) -> tuple[Sequence[Group], Sequence[Group]]:
    """Return the summaries, oldest first, and the groups that strategies choose from."""
    numbers = {index: summary_number(units.units[index][0].row) for index in units.summaries}
    if not numbers:
        return (), groups
    summaries = [group for group in groups if group.index in numbers]
    summaries.sort(key=lambda group: numbers[group.index])
    return summaries, pin_newest(group for group in groups if group.index not in numbers)


def _fit(strategy: Strategy, groups: Sequence[Group], budget: int) -> Fit:
    """Return what a strategy keeps, within the budget also where it counts messages.

    Only the first unit that `middle_out` protects may exceed the budget.
    """
    fit = fit_pinned(strategy, groups, budget)
    if strategy.name == "middle_out":
        return fit
    return replace(fit, kept=drop_excess(fit.kept, protected_indexes(groups), budget))


def fit_pinned(strategy: Strategy, groups: Sequence[Group], budget: int) -> Fit:
    """Return what a strategy keeps, always with the pinned groups: the user's newest message."""
    fit = checked(strategy, strategy.fit(groups, budget))
    pinned = [group for group in groups if group.pinned]
    kept = {group.index for group in fit.kept}
    if all(group.index in kept for group in pinned):
        return fit
    others = [group for group in groups if not group.pinned]
    fit = checked(strategy, strategy.fit(others, budget - cost(pinned)))
    return replace(fit, kept=tuple(sorted((*fit.kept, *pinned), key=attrgetter("index"))))
