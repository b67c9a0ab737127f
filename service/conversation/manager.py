"""A conversation with a model in process: what was said, and what of it fits into the next call."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from formatters.model import Row, Tool
from service.conversation.choice import Rule, choose, prepared, read_rule
from service.conversation.compaction import CompactionResult, Summarizes, plan_compaction
from service.conversation.context_config import ContextConfig
from service.conversation.frame import Frame, TokenUsage, local_now, moment_line
from service.conversation.message_log import Clock, ContextLogger, MessageLog
from service.conversation.selection import CountsText
from service.conversation.sending import SUMMARY, Prices, can_be_sent, disowned, own, written_by
from service.conversation.strategies import DEFAULT_COUNTER, ContextStrategy
from service.conversation.units import read_units


class ManagerOptions(TypedDict, total=False):
    """What a `ContextManager` can be made with, for classes that pass it on."""

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
    #: Of these messages.
    usage: TokenUsage
    #: True where what always stays exceeds the available tokens by itself.
    over_budget: bool


class ContextManager(MessageLog):
    """Holds conversations in memory, and fits them into a model's window.

    It is synchronous and does no I/O. Without a counter it estimates tokens from bytes; exact ones
    come from `service.adapters.tokens.tokenizers.get_token_counter`. ``max_tokens`` without a
    config has no reserve. ``strategy`` is a name, a list of names, one of the sources' classes or a
    strategy of the engine. ``sync_history`` forgets what no longer fits. ``clock`` tells the time
    in the zone of the reader.
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
        self._price = Prices(counter.count)
        self._rule = self.config.strategy if strategy is None else read_rule(strategy)
        self._tools: list[Tool] = []
        self._prompt = ""
        if system_prompt is not None:
            self.set_system_prompt(system_prompt)

    # --- prompt and tools --------------------------------------------------------------------

    @property
    def system_prompt(self) -> str:
        """The system prompt as it was set; an empty one is not sent."""
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
        """Set the tools that the model is offered."""
        self._tools = [deepcopy(tool) for tool in tools]

    def get_tool_definitions(self) -> list[Tool] | None:
        """Return the tools, or None where there are none, as APIs ask for it."""
        return deepcopy(self._tools) or None

    # --- building ----------------------------------------------------------------------------

    def build_messages(self, *, conversation_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages for the next call, with the date and the time of now."""
        return self.build(conversation_id=conversation_id).messages

    def build(self, *, conversation_id: str | None = None) -> BuiltContext:
        """Return the same with what it costs."""
        built, rows = self._build(conversation_id, moment_line(self._clock()))
        if self.sync_history:
            self.histories.replace(rows, conversation_id)
        if built.over_budget:
            excess = built.usage["total"] - built.usage["available"]
            self._warn(f"what always stays exceeds the budget by {excess} tokens")
        return built

    def get_prompt(self, conversation_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages for a call without date and time; never forgets any."""
        return self._build(conversation_id, "")[0].messages

    def get_token_usage(self, *, conversation_id: str | None = None) -> TokenUsage:
        """Return what all of a conversation costs, whether it fits or not."""
        rows = read_units(self._rows(conversation_id)).all_rows()
        return self._frame(moment_line(self._clock())).usage(rows)

    def is_over_budget(self, *, conversation_id: str | None = None) -> bool:
        """Tell whether something has to be left out of the next call."""
        usage = self.get_token_usage(conversation_id=conversation_id)
        return usage["total"] > usage["available"]

    def update_context_management(self, strategy: Rule | str | Sequence[object]) -> None:
        """Let another strategy decide from now on; raises `ValueError` for an unknown name."""
        self._rule = read_rule(strategy)

    def get_context_stats(self, conversation_id: str | None = None) -> dict[str, object]:
        """Say how much of a conversation goes into the next call; nothing of an unknown one."""
        if self.histories.named(conversation_id) not in self.histories:
            return {}
        total = len(self.histories.rows(conversation_id))
        built, rows = self._build(conversation_id, moment_line(self._clock()))
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

    # --- compaction --------------------------------------------------------------------------

    def should_compact(self, *, conversation_id: str | None = None) -> bool:
        """Tell whether a conversation has more than its share of the available tokens."""
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
        """Put a summary in the place of older messages, if that saves tokens.

        Returns None where nothing was to be done. What is said meanwhile stays; where the messages
        that were read have changed, the summary is thrown away. A `SummarizerError` becomes a
        refusal; whatever else the summariser raises comes through, and the history stays whole.
        """
        name = self.histories.named(conversation_id)
        if not (force or self.should_compact(conversation_id=name)):
            return None
        before, now = self.histories.rows(name), self._clock()
        plan = plan_compaction(before, self.config, self._price, now)
        if plan is None:
            return None
        result = await plan.summarized(summarizer, now)
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
        """Put a summary and preserved messages in the place of a conversation, as copies.

        It stands before them, but behind earlier summaries, which are known by being in the
        conversation already. An empty prompt is a prompt too.
        """
        here = [row for row in self.histories.rows(conversation_id) if written_by(row)]
        rows = [deepcopy(row if row in here else disowned(row)) for row in preserved_messages]
        self._apply(deepcopy(summary_message), rows, new_system_prompt, conversation_id)

    # --- inside ------------------------------------------------------------------------------

    def _apply(
        self, summary: Row, preserved: list[Row], prompt: str | None, conversation_id: str | None
    ) -> None:
        marked = [written_by(row) is not None for row in preserved]
        place = marked.index(False) if False in marked else len(marked)
        preserved.insert(place, own(summary, SUMMARY))
        self.histories.replace(preserved, conversation_id)
        if self._logger:
            self._logger.log_user(str(summary.get("content")))
        if prompt is not None:
            self.set_system_prompt(prompt)

    def _build(self, conversation_id: str | None, line: str) -> tuple[BuiltContext, list[Row]]:
        """Return the context, and the messages of the history that are in it."""
        frame, rule = self._frame(line), self._rule
        units = prepared(self._rows(conversation_id), rule)
        strategy = self.config.strategy if isinstance(rule, ContextStrategy) else rule
        rows = choose(units, strategy, frame.room(units.all_rows()), self._price)
        usage = frame.usage(rows)
        over = usage["total"] > usage["available"]
        return BuiltContext(frame.messages(rows), usage, over_budget=over), rows

    def _frame(self, line: str) -> Frame:
        return Frame(
            config=self.config,
            price=self._price,
            prompt=self._prompt,
            tools=self._tools,
            line=line,
        )

    def _rows(self, conversation_id: str | None) -> list[Row]:
        return [row for row in self.histories.rows(conversation_id) if can_be_sent(row)]


def _config(config: ContextConfig | None, max_tokens: int | None) -> ContextConfig:
    if max_tokens is None:
        return config or ContextConfig()
    if config is None:
        return ContextConfig(max_tokens=max_tokens, reserve_tokens=0)
    return replace(config, max_tokens=max_tokens)
