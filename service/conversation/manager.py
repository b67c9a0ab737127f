"""Conversations with a model in process: their messages, and the context of the next call."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from formatters.model import Row, Tool
from service.conversation.choice import Rule, apply_rule, choose, read_rule
from service.conversation.compaction import (
    CompactionResult,
    CountsText,
    Summarizes,
    plan_compaction,
)
from service.conversation.context_config import ContextConfig
from service.conversation.frame import Frame, TokenUsage, describe_time, local_now
from service.conversation.message_log import Clock, ContextLogger, MessageLog
from service.conversation.sending import (
    SUMMARY,
    RowCosts,
    can_be_sent,
    with_mark,
    without_mark,
    written_by,
)
from service.conversation.strategies import DEFAULT_COUNTER, ContextStrategy
from service.conversation.units import read_units


class ManagerOptions(TypedDict, total=False):
    """The keyword arguments of `ContextManager`, for subclasses that pass them on."""

    config: ContextConfig | None
    system_prompt: str | None
    max_tokens: int | None
    token_counter: CountsText | None
    strategy: Rule | str | Sequence[object] | None
    logger: ContextLogger | None
    sync_history: bool
    clock: Clock


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """Messages for the next call of a model."""

    #: In OpenAI's chat form, the system prompt first.
    messages: list[dict[str, Any]]
    usage: TokenUsage
    #: Whether the messages that are always kept exceed the available tokens.
    over_budget: bool


class ContextManager(MessageLog):
    """Holds conversations in memory, and fits them into a model's window.

    It is synchronous and does no I/O. Without a counter, tokens are estimated from bytes;
    `service.adapters.tokens.tokenizers.get_token_counter` counts exactly. ``max_tokens`` without a
    config has no reserve. ``strategy`` is a name, a list of names, one of the sources' classes or
    an engine strategy. ``sync_history`` deletes messages that no longer fit. ``clock`` returns the
    time in the zone of the reader.
    """

    def __init__(
        self,
        config: ContextConfig | None = None,
        *,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        token_counter: CountsText | None = None,
        strategy: Rule | str | Sequence[object] | None = None,
        logger: ContextLogger | None = None,
        sync_history: bool = False,
        clock: Clock = local_now,
    ) -> None:
        super().__init__(_config(config, max_tokens), logger, clock)
        self.sync_history = sync_history
        counter = DEFAULT_COUNTER if token_counter is None else token_counter
        self._row_cost = RowCosts(counter.count)
        self._rule = self.config.strategy if strategy is None else read_rule(strategy)
        self._tools: list[Tool] = []
        self._prompt = ""
        if system_prompt is not None:
            self.set_system_prompt(system_prompt)

    @property
    def system_prompt(self) -> str:
        """Return the system prompt as it was set; an empty one is not sent."""
        return self._prompt

    @system_prompt.setter
    def system_prompt(self, prompt: str) -> None:
        self.set_system_prompt(prompt)

    def set_system_prompt(self, prompt: str) -> None:
        """Set the system prompt."""
        self._prompt = prompt
        if self._logger:
            self._logger.log_system(prompt)

    def set_tool_definitions(self, tools: Sequence[Tool]) -> None:
        """Set the tools that are offered to the model."""
        self._tools = [deepcopy(tool) for tool in tools]

    def get_tool_definitions(self) -> list[Tool] | None:
        """Return the tools, or None instead of an empty list, which APIs refuse."""
        return deepcopy(self._tools) or None

    def build_messages(self, *, conversation_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages for the next call, with the current date and time."""
        return self.build(conversation_id=conversation_id).messages

    def build(self, *, conversation_id: str | None = None) -> BuiltContext:
        """Return the messages for the next call, with their tokens."""
        built, rows = self._build(conversation_id, describe_time(self._clock()))
        if self.sync_history:
            self.histories.replace(rows, conversation_id)
        if built.over_budget:
            excess = built.usage["total"] - built.usage["available"]
            self._warn(f"what is always kept exceeds the budget by {excess} tokens")
        return built

    def get_prompt(self, conversation_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages without date and time; deletes none."""
        return self._build(conversation_id, "")[0].messages

    def get_token_usage(self, *, conversation_id: str | None = None) -> TokenUsage:
        """Return the tokens of a whole conversation, whether it fits or not."""
        rows = read_units(self._rows(conversation_id)).all_rows()
        return self._frame(describe_time(self._clock())).usage(rows)

    def is_over_budget(self, *, conversation_id: str | None = None) -> bool:
        """Return whether messages have to be left out of the next call."""
        usage = self.get_token_usage(conversation_id=conversation_id)
        return usage["total"] > usage["available"]

    def update_context_management(self, strategy: Rule | str | Sequence[object]) -> None:
        """Replace the strategy; raises `ValueError` for an unknown name."""
        self._rule = read_rule(strategy)

    def get_context_stats(self, conversation_id: str | None = None) -> dict[str, object]:
        """Return how much of a conversation fits into the next call; empty for an unknown one."""
        if self.histories.resolve(conversation_id) not in self.histories:
            return {}
        total = len(self.histories.rows(conversation_id))
        built, rows = self._build(conversation_id, describe_time(self._clock()))
        rule = self._rule
        stats = rule.get_stats(total) if isinstance(rule, ContextStrategy) else {}
        return stats | {
            "strategy": rule.name,
            "total_messages": total,
            "messages_in_context": len(rows),
            "messages_dropped": max(0, total - len(rows)),
            "tokens": built.usage["total"],
            "over_budget": built.over_budget,
        }

    def should_compact(self, *, conversation_id: str | None = None) -> bool:
        """Return whether a conversation exceeds `CompactionConfig.trigger`."""
        usage = self.get_token_usage(conversation_id=conversation_id)
        compaction = self.config.compaction
        return compaction.enabled and usage["total"] > usage["available"] * compaction.trigger

    async def compact(
        self,
        summarizer: Summarizes,
        *,
        force: bool = False,
        conversation_id: str | None = None,
        new_system_prompt: str | None = None,
    ) -> CompactionResult | None:
        """Replace older messages with a summary, if that saves tokens.

        Returns None if there is nothing to do. Messages that are added in the meantime are kept;
        if the summarised ones have changed, the summary is discarded. A `SummarizerError` becomes
        a refusal; any other error is passed on, and the conversation stays as it is.
        """
        name = self.histories.resolve(conversation_id)
        if not (force or self.should_compact(conversation_id=name)):
            return None
        before, now = self.histories.rows(name), self._clock()
        plan = plan_compaction(before, self.config, self._row_cost, now)
        if plan is None:
            return None
        result = await plan.summarize(summarizer, now)
        if result.summary_message is None:
            return result
        rows = self.histories.rows(name)
        later = rows[len(before) :]
        unchanged = [*map(id, rows[: len(before)])] == [*map(id, before)]
        if not unchanged or plan.is_answered_by(later):
            return replace(result, refusal="history_changed")
        preserved = [*plan.selection.to_preserve, *later]
        self._apply(result.summary_message, preserved, new_system_prompt, name)
        return replace(result, committed=True)

    def apply_compaction(
        self,
        summary_message: Row,
        preserved_messages: Sequence[Row],
        new_system_prompt: str | None = None,
        *,
        conversation_id: str | None = None,
    ) -> None:
        """Replace a conversation with copies of a summary and of preserved messages.

        The summary precedes them, but follows earlier summaries, which are recognised by being in
        the conversation already. An empty prompt is set as well.
        """
        own = [row for row in self.histories.rows(conversation_id) if written_by(row)]
        rows = [deepcopy(row if row in own else without_mark(row)) for row in preserved_messages]
        self._apply(deepcopy(summary_message), rows, new_system_prompt, conversation_id)

    def _apply(
        self, summary: Row, preserved: list[Row], prompt: str | None, conversation_id: str | None
    ) -> None:
        marked = [written_by(row) is not None for row in preserved]
        index = marked.index(False) if False in marked else len(marked)
        preserved.insert(index, with_mark(summary, SUMMARY))
        self.histories.replace(preserved, conversation_id)
        if self._logger:
            self._logger.log_user(str(summary.get("content")))
        if prompt is not None:
            self.set_system_prompt(prompt)

    def _build(self, conversation_id: str | None, time: str) -> tuple[BuiltContext, list[Row]]:
        """Return the context, and the messages of the history that are in it."""
        frame, rule = self._frame(time), self._rule
        units = apply_rule(self._rows(conversation_id), rule)
        strategy = self.config.strategy if isinstance(rule, ContextStrategy) else rule
        rows = choose(units, strategy, frame.room(units.all_rows()), self._row_cost)
        usage = frame.usage(rows)
        over = usage["total"] > usage["available"]
        return BuiltContext(frame.messages(rows), usage, over_budget=over), rows

    def _frame(self, time: str) -> Frame:
        return Frame(
            config=self.config,
            row_cost=self._row_cost,
            prompt=self._prompt,
            tools=self._tools,
            time=time,
        )

    def _rows(self, conversation_id: str | None) -> list[Row]:
        return [row for row in self.histories.rows(conversation_id) if can_be_sent(row)]


def _config(config: ContextConfig | None, max_tokens: int | None) -> ContextConfig:
    if max_tokens is None:
        return config or ContextConfig()
    if config is None:
        return ContextConfig(max_tokens=max_tokens, reserve_tokens=0)
    return replace(config, max_tokens=max_tokens)
