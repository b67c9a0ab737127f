"""What is said in conversations: adding it, looking at it, clearing it, and telling a logger."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from formatters.model import Row
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
from service.conversation.sending import SESSION, correlated, disowned, own

#: The conversation of callers that name none.
DEFAULT: Final = "default"

#: Clears every conversation (SPADE_LLM's word), and none that has this id alone.
ALL: Final = "all"


class Histories:
    """Messages by conversation; a message is never changed, but may be replaced."""

    def __init__(self) -> None:
        self.current = DEFAULT
        self._rows: dict[str, list[Row]] = {DEFAULT: []}
        self._active: dict[str, None] = {}

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._rows

    @property
    def active(self) -> list[str]:
        """Return the conversations in which something was said, the first one first."""
        return list(self._active)

    def rows(self, conversation_id: str | None = None) -> tuple[Row, ...]:
        """Return what was said in a conversation, or in the current one."""
        return tuple(self._rows.get(self.named(conversation_id), ()))

    def named(self, conversation_id: str | None) -> str:
        """Return an id, or the current one in place of none."""
        return self.current if conversation_id is None else conversation_id

    def add(self, row: Row, conversation_id: str | None = None, *, first: bool = False) -> None:
        """Put a message behind the others, or before them."""
        name = self.named(conversation_id)
        rows = self._rows.setdefault(name, [])
        rows.insert(0 if first else len(rows), row)
        self._active.setdefault(name)

    def replace(self, rows: Iterable[Row], conversation_id: str | None = None) -> None:
        """Put messages in the place of all that a conversation has."""
        self._rows[self.named(conversation_id)] = list(rows)

    def turn_to(self, conversation_id: str) -> bool:
        """Make a conversation the current one, if there is such a one."""
        if conversation_id not in self._rows:
            return False
        self.current = conversation_id
        return True

    def clear(self, conversation_id: str | None = None) -> None:
        """Empty a conversation, which is then neither active nor current; an unknown one is none.

        `ALL` forgets every conversation.
        """
        if conversation_id == ALL:
            self._rows = {DEFAULT: []}
            self._active.clear()
            self.current = DEFAULT
            return
        name = self.named(conversation_id)
        if name not in self._rows:
            return
        self._rows[name] = []
        self._active.pop(name, None)
        if name == self.current:
            self.current = DEFAULT


Clock = Callable[[], datetime]

EMPTY_ANSWER: Final = "an empty answer of the model is left out"
NO_CONVERSATION: Final = "a tool result for a conversation that isn't there is left out"


class ContextLogger(Protocol):
    """Hears what is said, in the order in which it is (NEXUS3's session log)."""

    def log_system(self, content: str) -> None:
        """Hear the system prompt, whenever it is set."""
        ...

    def log_user(self, content: str) -> None:
        """Hear a message of the user."""
        ...

    def log_assistant(self, content: str, tool_calls: Sequence[AnyCall]) -> None:
        """Hear an answer."""
        ...

    def log_tool_result(self, tool_call_id: str, name: str, result: str) -> None:
        """Hear a tool's result."""
        ...


@runtime_checkable
class HearsWarnings(Protocol):
    """What a logger may do besides: hear what was left out."""

    def log_warning(self, message: str) -> None:
        """Hear why something was not taken."""
        ...


class SpadeMessage(Protocol):
    """A message between agents, as SPADE has it; addresses may have a resource (``a@x/phone``)."""

    body: str | None
    sender: Any
    to: Any
    thread: str | None


class MessageLog:
    """Conversations in memory. Messages are copied on their way in and on their way out.

    What adds one raises `TypeError` for content in bytes.
    """

    def __init__(self, config: ContextConfig, logger: ContextLogger | None, clock: Clock) -> None:
        self.config = config
        self._logger = logger
        self._clock = clock
        #: The messages themselves, uncopied; for those who keep them elsewhere too.
        self.histories = Histories()

    # --- adding ------------------------------------------------------------------------------

    def add_user_message(
        self,
        content: str,
        *,
        conversation_id: str | None = None,
        name: str | None = None,
        meta: Row | None = None,
    ) -> None:
        """Add what the user says; ``meta`` tells where it came from and is never sent."""
        row = create_user_message(content, name)
        self._add_of_user({**row, "metadata": {**meta}} if meta else row, conversation_id)
        if self._logger:
            self._logger.log_user(content)

    def add_assistant_message(
        self,
        content: str | None,
        tool_calls: Iterable[AnyCall] | None = (),
        *,
        conversation_id: str | None = None,
    ) -> None:
        """Add an answer of the model; one that says and calls nothing is left out."""
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
        """Add a tool's result: a text, a `ToolResult`, or what is printed as one.

        One for a conversation that isn't there is left out.
        """
        if self.histories.named(conversation_id) not in self.histories:
            self._warn(NO_CONVERSATION)
            return
        text = result_text(result)
        if self._logger:
            self._logger.log_tool_result(tool_call_id, name, text)
        if self.config.correlate_results:
            text = correlated(text, tool_call_id, self.histories.rows(conversation_id))
        row = create_tool_result_message(text, tool_call_id)
        self._add({**row, "metadata": {"name": name}}, conversation_id)

    def add_message_dict(self, message: Row, conversation_id: str | None = None) -> None:
        """Add a chat message, or a message of another shape, as it is.

        But a mark that the system wrote it, as on a copy of a summary, is taken off.
        """
        self._add_of_user(message, conversation_id)

    def add_message(self, message: SpadeMessage, conversation_id: str) -> None:
        """Add what another agent says, as a user's message under its name."""
        sender = str(message.sender or "")
        row = {
            **create_user_message(message.body or "", speaker_name(sender)),
            "sender": sender,
            "receiver": str(message.to or ""),
            "thread": message.thread,
        }
        self._add_of_user(row, conversation_id)
        if self._logger:
            self._logger.log_user(message.body or "")

    def add_session_start_message(
        self, details: dict[str, str] | None = None, *, conversation_id: str | None = None
    ) -> None:
        """Put the time before all messages, and details such as ``{"Agent": "scout"}``."""
        text = session_start(self._clock(), details)
        row = own(create_user_message(text), SESSION)
        self.histories.add(row, conversation_id, first=True)
        if self._logger:
            self._logger.log_user(text)

    # --- looking -----------------------------------------------------------------------------

    @property
    def messages(self) -> list[Row]:
        """Return the messages of the current conversation, as a copy."""
        return self.get_conversation_history()

    def get_conversation_history(self, conversation_id: str | None = None) -> list[Row]:
        """Return the messages of a conversation as they were added, as a copy."""
        return [deepcopy(row) for row in self.histories.rows(conversation_id)]

    def get_active_conversations(self) -> list[str]:
        """Return the ids of the conversations in which something was said."""
        return self.histories.active

    @property
    def current_conversation(self) -> str:
        """Return the id of the conversation that is meant where none is named."""
        return self.histories.current

    def set_current_conversation(self, conversation_id: str) -> bool:
        """Make a conversation the current one; returns False where there is no such one."""
        return self.histories.turn_to(conversation_id)

    # --- clearing ----------------------------------------------------------------------------

    def clear(self, conversation_id: str | None = None) -> None:
        """Empty a conversation, the current one where none is named, or ``"all"`` of them."""
        self.histories.clear(conversation_id)

    def clear_messages(self, *, conversation_id: str | None = None) -> None:
        """Empty a conversation; it stays the current one, prompt and tools stay."""
        self.histories.replace((), conversation_id)

    # --- inside ------------------------------------------------------------------------------

    def _add(self, row: Row, conversation_id: str | None) -> None:
        check_content(row)
        self.histories.add(deepcopy(disowned(row)), conversation_id)

    def _add_of_user(self, row: Row, conversation_id: str | None) -> None:
        """Add a message that makes its conversation the current one."""
        self._add(row, conversation_id)
        self.histories.turn_to(self.histories.named(conversation_id))

    def _warn(self, message: str) -> None:
        if isinstance(self._logger, HearsWarnings):
            self._logger.log_warning(message)
