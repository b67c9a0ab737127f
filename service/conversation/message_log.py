"""Conversations in memory: adding messages, reading and clearing them, and logging what is said."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, Final, Protocol

from formatters.guard import one_line
from formatters.model import Row, ToolCall
from formatters.printed import truncate
from service.conversation.context_config import ContextConfig
from service.conversation.frame import session_start
from service.conversation.messages import (
    AnyCall,
    check_content,
    create_assistant_message,
    create_assistant_tool_call_message,
    create_tool_result_message,
    create_user_message,
    result_text,
    speaker_name,
)
from service.conversation.sending import SESSION, with_mark, without_mark
from service.conversation.shapes import read_messages

Clock = Callable[[], datetime]

EMPTY_ANSWER: Final = "an empty answer of the model is left out"
NO_CONVERSATION: Final = "a tool result for a conversation that doesn't exist is left out"


class MessageLog:
    """Conversations in memory. Messages are copied on their way in and on their way out.

    Methods that add a message raise `TypeError` for content in bytes.
    """

    def __init__(self, config: ContextConfig, logger: "ContextLogger | None", clock: Clock) -> None:
        self.config = config
        self._logger = logger
        self._clock = clock
        #: The messages themselves, without copying, for callers that store them elsewhere too.
        self.histories = Histories()

    def add_user_message(
        self,
        content: str,
        *,
        conversation_id: str | None = None,
        name: str | None = None,
        meta: Row | None = None,
    ) -> None:
        """Add a message of the user; ``meta``, such as its origin, is never sent."""
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
        """Add an answer of the model; one with neither text nor calls is left out."""
        calls = tuple(tool_calls or ())
        if not calls and not (content or "").strip():
            self._warn(EMPTY_ANSWER)
            return
        row = create_assistant_message(content or "")
        if calls:
            row = create_assistant_tool_call_message(calls, content or None)
        self._add(row, conversation_id)
        if self._logger:
            self._logger.log_assistant(content or "", calls)

    def add_tool_result(
        self, *, tool_call_id: str, name: str, result: object, conversation_id: str | None = None
    ) -> None:
        """Add a tool's result: a text, a `ToolResult`, or an object that is converted to text.

        A result for a conversation that doesn't exist is left out.
        """
        if self.histories.resolve(conversation_id) not in self.histories:
            self._warn(NO_CONVERSATION)
            return
        text = result_text(result)
        if self._logger:
            self._logger.log_tool_result(tool_call_id, name, text)
        if self.config.correlate_results:
            text = correlate(text, tool_call_id, self.histories.rows(conversation_id))
        row = create_tool_result_message(text, tool_call_id)
        self._add({**row, "metadata": {"name": name}}, conversation_id)

    def add_message_dict(self, message: Row, conversation_id: str | None = None) -> None:
        """Add a chat message, or a message of another shape, as it is.

        Only a mark that the system wrote it, as on a copy of a summary, is removed.
        """
        self._add_from_user(message, conversation_id)

    def add_message(self, message: "SpadeMessage", conversation_id: str) -> None:
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
        """Add the time before all messages, with details such as ``{"Agent": "scout"}``."""
        text = session_start(self._clock(), details)
        row = with_mark(create_user_message(text), SESSION)
        self.histories.add(row, conversation_id, first=True)
        if self._logger:
            self._logger.log_user(text)

    def _add(self, row: Row, conversation_id: str | None) -> None:
        check_content(row)
        self.histories.add(deepcopy(without_mark(row)), conversation_id)

    def _add_from_user(self, row: Row, conversation_id: str | None) -> None:
        """Add a message that makes its conversation the current one."""
        self._add(row, conversation_id)
        self.histories.select(self.histories.resolve(conversation_id))

    def _warn(self, message: str) -> None:
        if log_warning := getattr(self._logger, "log_warning", None):
            log_warning(message)

    @property
    def messages(self) -> list[Row]:
        """Return the messages of the current conversation, as a copy."""
        return self.get_conversation_history()

    def get_conversation_history(self, conversation_id: str | None = None) -> list[Row]:
        """Return the messages of a conversation as they were added, as a copy."""
        return [deepcopy(row) for row in self.histories.rows(conversation_id)]

    def get_active_conversations(self) -> list[str]:
        """Return the ids of the conversations with messages, oldest first."""
        return self.histories.active

    @property
    def current_conversation(self) -> str:
        """Return the id of the conversation that is used if a call names none."""
        return self.histories.current

    def set_current_conversation(self, conversation_id: str) -> bool:
        """Make a conversation the current one; returns False if it doesn't exist."""
        return self.histories.select(conversation_id)

    def clear(self, conversation_id: str | None = None) -> None:
        """Empty a conversation, by default the current one, or ``"all"`` of them."""
        self.histories.clear(conversation_id)

    def clear_messages(self, *, conversation_id: str | None = None) -> None:
        """Empty a conversation, which stays the current one; prompt and tools stay as well."""
        self.histories.replace((), conversation_id)


class ContextLogger(Protocol):
    """Is called with each message, in their order (NEXUS3's session log).

    A logger that has ``log_warning(message)`` also gets the reasons why messages were left out.
    """

    def log_system(self, content: str) -> None:
        """Log the system prompt, whenever it is set."""
        ...

    def log_user(self, content: str) -> None:
        """Log a message of the user."""
        ...

    def log_assistant(self, content: str, tool_calls: Sequence[AnyCall]) -> None:
        """Log an answer of the model."""
        ...

    def log_tool_result(self, tool_call_id: str, name: str, result: str) -> None:
        """Log a tool's result."""
        ...


class SpadeMessage(Protocol):
    """A message between agents, as SPADE has it; addresses may have a resource (``a@x/phone``)."""

    body: str | None
    sender: Any
    to: Any
    thread: str | None


#: The conversation of callers that name none.
DEFAULT: Final = "default"

#: In `Histories.clear`, every conversation (SPADE_LLM's word), not one of this id.
ALL: Final = "all"


class Histories:
    """Messages by conversation. A message is never changed, but may be replaced."""

    def __init__(self) -> None:
        self.current = DEFAULT
        self._rows: dict[str, list[Row]] = {DEFAULT: []}
        #: The keys are the conversations with messages, oldest first.
        self._active: dict[str, None] = {}

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._rows

    @property
    def active(self) -> list[str]:
        """Return the conversations with messages, oldest first."""
        return list(self._active)

    def rows(self, conversation_id: str | None = None) -> tuple[Row, ...]:
        """Return the messages of a conversation, by default the current one."""
        return tuple(self._rows.get(self.resolve(conversation_id), ()))

    def resolve(self, conversation_id: str | None) -> str:
        """Return the id, or that of the current conversation for None."""
        return self.current if conversation_id is None else conversation_id

    def add(self, row: Row, conversation_id: str | None = None, *, first: bool = False) -> None:
        """Add a message at the end, or at the start."""
        name = self.resolve(conversation_id)
        rows = self._rows.setdefault(name, [])
        rows.insert(0 if first else len(rows), row)
        self._active.setdefault(name)

    def replace(self, rows: Iterable[Row], conversation_id: str | None = None) -> None:
        """Replace all messages of a conversation."""
        self._rows[self.resolve(conversation_id)] = list(rows)

    def select(self, conversation_id: str) -> bool:
        """Make a conversation the current one; returns False if it doesn't exist."""
        if conversation_id not in self._rows:
            return False
        self.current = conversation_id
        return True

    def clear(self, conversation_id: str | None = None) -> None:
        """Empty a conversation, which is then neither active nor current, or `ALL` of them.

        An unknown conversation is ignored.
        """
        if conversation_id == ALL:
            self._rows = {DEFAULT: []}
            self._active.clear()
            self.current = DEFAULT
            return
        name = self.resolve(conversation_id)
        if name not in self._rows:
            return
        self._rows[name] = []
        self._active.pop(name, None)
        if name == self.current:
            self.current = DEFAULT


#: Most characters of the line about a call, and of a value in it, by NEXUS3.
MAX_LINE: Final = 120
MAX_VALUE: Final = 50

#: Arguments that are too long or meaningless to a reader.
_OMITTED: Final = frozenset({"_parallel", "content", "new_content", "code"})


def correlate(text: str, tool_call_id: str, rows: Sequence[Row]) -> str:
    """Return a result below a line about its call: ``[#1: search(q="x")]`` (NEXUS3's form).

    Calls are numbered within their message. Of several calls with one id, the newest is used; if
    there is none, the result is returned as it is.
    """
    for row in reversed(rows):
        for message in read_messages(row):
            for number, call in enumerate(message.tool_calls, start=1):
                if call.id == tool_call_id:
                    line = f"#{number}: {call.name}({', '.join(_describe_arguments(call))})"
                    return f"[{truncate(line, MAX_LINE)}]\n{text}"
    return text


def _describe_arguments(call: ToolCall) -> Iterator[str]:
    for name, value in (call.arguments or {}).items():
        if name not in _OMITTED:
            written = json.dumps(value, ensure_ascii=False, default=str)
            yield f"{name}={truncate(one_line(written), MAX_VALUE)}"
