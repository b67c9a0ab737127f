"""Conversations with a model in process: their messages, and the context of the next call."""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypedDict

from cachetools import LRUCache

from formatters.guard import guard_for
from formatters.model import Row, Tool
from formatters.repair.sequence import EMPTY
from formatters.rows import counted
from service.conversation.checks import (
    check_call,
    check_calls,
    check_message,
    check_readable,
    check_values,
    read_tools,
)
from service.conversation.compaction import CompactionResult, Draft, Originals, select
from service.conversation.context_config import ContextConfig
from service.conversation.frame import (
    Clock,
    Frame,
    TokenUsage,
    describe_call,
    describe_time,
    local_now,
    session_start,
)
from service.conversation.losses import describe_losses
from service.conversation.messages import (
    SESSION,
    SUMMARY,
    AnyCall,
    ContextLogger,
    SpadeMessage,
    create_assistant_message,
    create_assistant_tool_call_message,
    create_tool_result_message,
    create_user_message,
    result_text,
    speaker_name,
    with_mark,
    with_summaries,
    with_unread_arguments,
    without_mark,
)
from service.conversation.sending import RowCosts, can_be_sent
from service.conversation.shapes import is_placeholder, is_system
from service.conversation.strategies import (
    DEFAULT_COUNTER,
    ContextStrategy,
    Rule,
    apply_around_summaries,
    choose,
    read_rule,
)
from service.conversation.units import UnitReader, Units, read_units
from service.errors import explain_call, shown
from service.ports.services import Summarizer, TokenCounter

#: The conversation of callers that name none.
DEFAULT: Final = "default"

#: In `ContextManager.clear`, every conversation (SPADE_LLM's word), not one of this id.
ALL: Final = "all"

#: Conversations at most of which it is remembered what was read of their messages.
MAX_READERS: Final = 16

EMPTY_ANSWER: Final = "an empty answer of the model is left out"
NO_CONVERSATION: Final = "a tool result for a conversation that doesn't exist is left out"


class ManagerOptions(TypedDict, total=False):
    """The keyword arguments of `ContextManager`, for subclasses that pass them on."""

    config: ContextConfig | None
    system_prompt: str | None
    max_tokens: int | None
    token_counter: TokenCounter | None
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
    #: Texts on empty messages and on results that no call waits for, both left out, and on replaced
    #: arguments.
    warnings: tuple[str, ...] = ()


class ContextManager:
    """Holds conversations in memory, and fits them into a model's window.

    It is synchronous and does no I/O. Messages are copied on their way in and on their way out;
    methods that add one raise `TypeError` for content in bytes and for what is no mapping, and
    `MessageError` for what can't be read: an unknown role, no key of content, a call without name.
    Empty messages stay in the conversation, and `build` warns that they aren't sent.
    Without a counter, tokens are estimated from bytes; `ctxb.get_token_counter` counts exactly.
    ``max_tokens`` without a config has no reserve. ``strategy`` is a name, a list of names, one of
    the sources' classes or an engine strategy. ``sync_history`` deletes messages that no longer
    fit. ``clock`` returns the time in the zone of the reader.
    """

    @explain_call(
        "ContextManager(config, system_prompt=…, max_tokens=…, token_counter=…, strategy=…)",
        positional=2,
    )
    def __init__(
        self,
        config: ContextConfig | None = None,
        *,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        token_counter: TokenCounter | None = None,
        strategy: Rule | str | Sequence[object] | None = None,
        logger: ContextLogger | None = None,
        sync_history: bool = False,
        clock: Clock = local_now,
    ) -> None:
        if config is not None and not isinstance(config, ContextConfig):
            fix = f"; use max_tokens={config}" if type(config) is int else ""
            raise TypeError(f"config has to be a ContextConfig, not {shown(config)}{fix}")
        self.config = config or ContextConfig()
        if max_tokens is not None:
            reserve = config.reserve_tokens if config else 0
            self.config = replace(self.config, max_tokens=max_tokens, reserve_tokens=reserve)
        self.sync_history = sync_history
        #: The conversation that is used if a call names none.
        self.current_conversation = DEFAULT
        self._logger = logger
        self._clock = clock
        self._conversations: dict[str, list[Row]] = {DEFAULT: []}
        self._originals = Originals()
        counter = DEFAULT_COUNTER if token_counter is None else token_counter
        if isinstance(counter, str | Sequence) or not hasattr(counter, "count"):
            fix = "get_token_counter() returns one that does"
            raise TypeError(f"token_counter has to count texts, not {shown(counter)}; {fix}")
        self._guard = guard_for(None, role_marks=self.config.role_marks)
        self._row_cost = RowCosts(counter, self._guard)
        self._readers: LRUCache[str, UnitReader] = LRUCache(MAX_READERS)
        self._rule = self.config.strategy if strategy is None else read_rule(strategy)
        self._tools: list[Tool] = []
        self._tools_json = ""
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
        """Set the system prompt; raises `TypeError` for anything but a text."""
        if not isinstance(prompt, str):
            raise TypeError(f"system_prompt has to be a text, not {shown(prompt)}")
        self._prompt = prompt
        if self._logger:
            self._logger.log_system(prompt)

    def set_tool_definitions(self, tools: Sequence[Tool]) -> None:
        """Set the tools that are offered to the model; special tokens in them get a backslash.

        Raises `TypeError` for anything but a list of definitions.
        """
        given = read_tools(tools)
        written = json.dumps(given, default=str)
        broken = self._guard.shatter_json(written)
        self._tools = json.loads(broken) if broken != written else deepcopy(given)
        self._tools_json = json.dumps(self._tools, default=str) if self._tools else ""

    def get_tool_definitions(self) -> list[Tool] | None:
        """Return the tools, or None instead of an empty list, which APIs refuse."""
        return deepcopy(self._tools) or None

    # --- messages ----------------------------------------------------------------------------

    def add_user_message(
        self,
        content: str,
        *,
        conversation_id: str | None = None,
        name: str | None = None,
        meta: Row | None = None,
    ) -> None:
        """Add a message of the user; ``meta``, such as its origin, is never sent."""
        if isinstance(content, Mapping):
            fix = "add a whole message by add_message_dict"
            raise TypeError(f"content has to be a text, not {shown(content)}: {fix}")
        row = create_user_message(content, name)
        self._add_from_user({**row, "metadata": {**meta}} if meta else row, conversation_id)
        if self._logger:
            self._logger.log_user(content)

    def add_assistant_message(
        self,
        content: str | None,
        tool_calls: Iterable[AnyCall] | None = (),
        *,
        conversation_id: str | None = None,
    ) -> None:
        """Add an answer of the model, unless it has neither text nor calls."""
        if not isinstance(content, str | None):
            fix = "add a message of parts by add_message_dict"
            raise TypeError(f"content has to be a text, not {shown(content)}: {fix}")
        calls = tuple(tool_calls or ())
        if not calls and not (content or "").strip():
            self._warn(EMPTY_ANSWER)
            return
        row = create_assistant_message(content or "")
        if calls:
            for index, call in enumerate(calls):
                if isinstance(call, Mapping):
                    check_call(call, f"tool_calls[{index}]")
                    check_values(call, f"tool_calls[{index}]")
            row = create_assistant_tool_call_message(calls, content or None)
            row = with_unread_arguments(row, calls)
        self._add(row, conversation_id)
        if self._logger:
            self._logger.log_assistant(content or "", calls)

    @explain_call("add_tool_result(tool_call_id=…, name=…, result=…)", positional=1)
    def add_tool_result(
        self, *, tool_call_id: str, name: str, result: object, conversation_id: str | None = None
    ) -> None:
        """Add a tool's result: a text, a `ToolResult`, or what `create_tool_result_message` takes.

        A result for a conversation that doesn't exist is left out.
        """
        if not self.has_conversation(conversation_id):
            self._warn(NO_CONVERSATION)
            return
        check_values(result, "result")
        text = result_text(result)
        if self._logger:
            self._logger.log_tool_result(tool_call_id, name, text)
        row = {**create_tool_result_message(text, tool_call_id), "metadata": {"name": name}}
        rows = self.rows(conversation_id) if self.config.correlate_results else ()
        line = describe_call(tool_call_id, rows)
        if line:
            row["content"] = f"{line}\n{text if text.strip() else EMPTY}"
        self._add(row, conversation_id)

    def add_message_dict(self, message: Row, conversation_id: str | None = None) -> None:
        """Add a chat message, or a message of another shape, as it is; raises `MessageError`.

        Only a mark that the system wrote it, as on a copy of a summary, is removed.
        """
        self._add_from_user(message, conversation_id)

    def add_message(self, message: SpadeMessage, conversation_id: str) -> None:
        """Add a message of another agent, as a user's message under its name."""
        sender = str(message.sender or "")
        row = {
            **create_user_message(message.body or "", speaker_name(sender)),
            "sender": sender,
            "receiver": str(message.to or ""),
            "thread": message.thread,
        }
        self._add_from_user(row, conversation_id)
        if self._logger:
            self._logger.log_user(message.body or "")

    def add_session_start_message(
        self, details: dict[str, str] | None = None, *, conversation_id: str | None = None
    ) -> None:
        """Insert a first message with the time, and details such as ``{"Agent": "scout"}``."""
        text = session_start(self._clock(), details)
        row = with_mark(create_user_message(text), SESSION)
        self.replace_rows([row, *self.rows(conversation_id)], conversation_id)
        if self._logger:
            self._logger.log_user(text)

    def _add(self, row: Row, conversation_id: str | None) -> None:
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise TypeError(f"a message is a mapping with role and content, not a {kind}")
        for key in ("content", "parts"):
            if isinstance(row.get(key), bytes | bytearray | memoryview):
                raise TypeError(f"{key} is a text, a list of parts, or None, but not bytes")
        if row.get("role") not in ("command", "COMMAND"):  # rows of history that are never sent
            check_message(row, "the message")
        check_readable(row, "the message")
        check_calls(row, "the message")
        rows = self._conversations.setdefault(self._resolve(conversation_id), [])
        rows.append(deepcopy(without_mark(row)))

    def _add_from_user(self, row: Row, conversation_id: str | None) -> None:
        """Add a message that makes its conversation the current one."""
        self._add(row, conversation_id)
        self.current_conversation = self._resolve(conversation_id)

    def _warn(self, message: str) -> None:
        if log_warning := getattr(self._logger, "log_warning", None):
            log_warning(message)

    @property
    def messages(self) -> list[Row]:
        """Return the messages of the current conversation, as a copy."""
        return self.get_conversation_history()

    def get_conversation_history(self, conversation_id: str | None = None) -> list[Row]:
        """Return the messages of a conversation as they were added, as a copy."""
        return [deepcopy(row) for row in self.rows(conversation_id)]

    def rows(self, conversation_id: str | None = None) -> tuple[Row, ...]:
        """Return the messages themselves, not copies: don't change them."""
        return tuple(self._conversations.get(self._resolve(conversation_id), ()))

    def replace_rows(self, rows: Iterable[Row], conversation_id: str | None = None) -> None:
        """Replace all messages of a conversation, without copying them."""
        self._conversations[self._resolve(conversation_id)] = list(rows)

    def has_conversation(self, conversation_id: str | None = None) -> bool:
        """Return whether a conversation exists, even an empty one."""
        return self._resolve(conversation_id) in self._conversations

    def get_active_conversations(self) -> list[str]:
        """Return the ids of the conversations with messages, oldest first."""
        return [name for name, rows in self._conversations.items() if rows]

    def set_current_conversation(self, conversation_id: str) -> bool:
        """Make a conversation the current one; returns False if it doesn't exist."""
        exists = self.has_conversation(conversation_id)
        if exists:
            self.current_conversation = conversation_id
        return exists

    def clear(self, conversation_id: str | None = None) -> None:
        """Empty a conversation, or ``"all"``; it is then no longer the current one."""
        name = self._resolve(conversation_id)
        if conversation_id == ALL:
            self._conversations = {DEFAULT: []}
        elif name in self._conversations:
            self._conversations[name] = []
        if conversation_id == ALL or name == self.current_conversation:
            self.current_conversation = DEFAULT
        self._forget_originals()

    def clear_messages(self, *, conversation_id: str | None = None) -> None:
        """Empty a conversation, which stays the current one; prompt and tools stay as well."""
        self.replace_rows((), conversation_id)
        self._forget_originals()

    def _forget_originals(self) -> None:
        self._originals.forget_all_but(chain.from_iterable(self._conversations.values()))

    def _resolve(self, conversation_id: str | None) -> str:
        return self.current_conversation if conversation_id is None else conversation_id

    # --- contexts ----------------------------------------------------------------------------

    def build_messages(self, *, conversation_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages for the next call, with the current date and time."""
        return self.build(conversation_id=conversation_id).messages

    def build(self, *, conversation_id: str | None = None) -> BuiltContext:
        """Return the messages for the next call, with their tokens."""
        built, rows = self._build(conversation_id, describe_time(self._clock()))
        losses = describe_losses(self._read(conversation_id), self.rows(conversation_id))
        built = replace(built, warnings=(*losses,))
        for warning in built.warnings:
            self._warn(warning)
        if self.sync_history:
            self.replace_rows(with_summaries(rows, self.rows(conversation_id)), conversation_id)
        if built.over_budget:
            excess = built.usage["total"] - built.usage["available"]
            self._warn(f"what is always kept exceeds the budget by {counted(excess, 'token')}")
        return built

    def get_prompt(self, conversation_id: str | None = None) -> list[dict[str, Any]]:
        """Return the messages without date and time; never deletes any."""
        return self._build(conversation_id, "")[0].messages

    def get_token_usage(self, *, conversation_id: str | None = None) -> TokenUsage:
        """Return the tokens of a whole conversation, whether it fits or not."""
        rows = self._read(conversation_id).all_rows()
        return self._frame(describe_time(self._clock())).usage(rows)

    def is_over_budget(self, *, conversation_id: str | None = None) -> bool:
        """Return whether messages have to be left out of the next call."""
        usage = self.get_token_usage(conversation_id=conversation_id)
        return usage["total"] > usage["available"]

    @property
    def context_management(self) -> Rule:
        """Return the strategy; `update_context_management` replaces it."""
        return self._rule

    def update_context_management(self, strategy: Rule | str | Sequence[object]) -> None:
        """Replace the strategy; raises `ValueError` for an unknown name."""
        self._rule = read_rule(strategy)

    def get_context_stats(self, conversation_id: str | None = None) -> dict[str, object]:
        """Return how much of a conversation fits into the next call; {} for an unknown one."""
        if not self.has_conversation(conversation_id):
            return {}
        given = self.rows(conversation_id)
        total, known = len(given), set(map(id, given))
        built, rows = self._build(conversation_id, describe_time(self._clock()))
        shown_rows = len([row for row in rows if id(row) in known or not is_placeholder(row)])
        rule = self._rule
        stats = rule.get_stats(total) if isinstance(rule, ContextStrategy) else {}
        return stats | {
            "strategy": rule.name,
            "total_messages": total,
            "messages_in_context": shown_rows,
            "messages_dropped": max(0, total - shown_rows),
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
        summarizer: Summarizer,
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
        name = self._resolve(conversation_id)
        if not (force or self.should_compact(conversation_id=name)):
            return None
        before, now = self.rows(name), self._clock()
        draft = self._draft(before, now)
        if draft is None:
            return None
        result = await draft.summarize(summarizer, self._row_cost, now)
        if result.summary_message is None:
            return result
        rows = self.rows(name)
        later = rows[len(before) :]
        unchanged = [*map(id, rows[: len(before)])] == [*map(id, before)]
        if not unchanged or draft.is_answered_by(later):
            return replace(result, refusal="history_changed")
        summary = self._originals.number(result.summary_message, draft.originals)
        self._apply(summary, [*draft.rows_with(summary), *later], new_system_prompt, name)
        return replace(result, summary_message=deepcopy(summary), committed=True)

    def _draft(self, rows: Sequence[Row], now: datetime) -> Draft | None:
        """Return what to summarise; the shares are of the tokens that messages may use."""
        compaction, row_cost = self.config.compaction, self._row_cost
        room = self._frame("").room(rows) - sum(row_cost(row) for row in rows if is_system(row))
        share = int(room * compaction.summary_budget_ratio)
        preserved = int(room * compaction.recent_preserve_ratio)
        selection = select(rows, row_cost, preserved, room - share)
        return selection.draft(share, self._originals, row_cost, now)

    def apply_compaction(
        self,
        summary_message: Row,
        preserved_messages: Sequence[Row],
        new_system_prompt: str | None = None,
        *,
        conversation_id: str | None = None,
    ) -> None:
        """Replace a conversation with copies of a summary and of preserved messages, in this order.

        Earlier summaries among these are recognised by being in the conversation. What is not
        preserved is remembered, so that later summaries can be made of it. An empty prompt is set
        as well.
        """
        for index, row in enumerate((summary_message, *preserved_messages)):
            check_readable(row, f"preserved_messages[{index - 1}]" if index else "summary_message")
        replaced, preserved = [*self.rows(conversation_id)], []
        for row in preserved_messages:
            own = next((index for index, other in enumerate(replaced) if other == row), None)
            preserved.append(deepcopy(without_mark(row)) if own is None else replaced.pop(own))
        summary = with_mark(deepcopy(summary_message), SUMMARY)
        summary = self._originals.number(summary, self._originals.expand(replaced))
        self._apply(summary, [summary, *preserved], new_system_prompt, conversation_id)

    def _apply(
        self, summary: Row, rows: Sequence[Row], prompt: str | None, conversation_id: str | None
    ) -> None:
        """Replace a conversation with one that has a new summary."""
        self.replace_rows(rows, conversation_id)
        self._forget_originals()
        if self._logger:
            self._logger.log_user(str(summary.get("content")))
        if prompt is not None:
            self.set_system_prompt(prompt)

    def _build(self, conversation_id: str | None, time: str) -> tuple[BuiltContext, list[Row]]:
        """Return the context, and the messages of the history that are in it."""
        frame, strategy = self._frame(time), self._rule
        if isinstance(strategy, ContextStrategy):
            sendable = [row for row in self.rows(conversation_id) if can_be_sent(row)]
            units = read_units(apply_around_summaries(strategy, sendable))
            strategy = self.config.strategy
        else:
            units = self._read(conversation_id)
        rows = choose(units, strategy, frame.room(units.all_rows()), self._row_cost)
        usage = frame.usage(rows)
        over = usage["total"] > usage["available"]
        return BuiltContext(frame.messages(rows), usage, over_budget=over), rows

    def _frame(self, time: str) -> Frame:
        return Frame(
            config=self.config,
            row_cost=self._row_cost,
            prompt=self._prompt,
            tools=self._tools_json,
            time=time,
        )

    def _read(self, conversation_id: str | None) -> Units:
        """Return the messages of a conversation that can be sent."""
        name = self._resolve(conversation_id)
        if name not in self._readers:
            self._readers[name] = UnitReader(self._row_cost)
        return self._readers[name].read(self.rows(name))
