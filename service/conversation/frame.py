"""What surrounds the messages of a context: prompt, tools and time; and the tokens of it all."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from formatters.guard import one_line, without_marks
from formatters.model import Role, Row, Tool
from service.conversation.context_config import ContextConfig
from service.conversation.messages import is_list
from service.conversation.sending import RowCosts, message_tokens, prepare
from service.conversation.shapes import read_messages


class TokenUsage(TypedDict):
    """Tokens of a context, and of the window it has to fit into."""

    #: The system prompt as it was set.
    system: int
    #: The tool definitions as JSON.
    tools: int
    messages: int
    #: Date and time.
    dynamic: int
    total: int
    #: The window of the model.
    budget: int
    #: The window without the reserve for the answer.
    available: int
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """All of a context but its messages."""

    config: ContextConfig
    row_cost: RowCosts
    prompt: str
    tools: Sequence[Tool]
    #: Date and time; empty for none.
    time: str

    def room(self, rows: Sequence[Row]) -> int:
        """Return the tokens that are left for messages, given all messages."""
        return self.config.available - self._system - self._tools - self._dynamic(rows)

    def usage(self, rows: Sequence[Row]) -> TokenUsage:
        """Return the tokens of a context with these messages."""
        system, tools = self._system, self._tools
        messages, dynamic = sum(map(self.row_cost, rows)), self._dynamic(rows)
        total, available = system + tools + messages + dynamic, self.config.available
        return {
            "system": system,
            "tools": tools,
            "messages": messages,
            "dynamic": dynamic,
            "total": total,
            "budget": self.config.max_tokens,
            "available": available,
            "remaining": max(0, available - total),
        }

    def messages(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the messages as they are sent, the system prompt first."""
        prompt = self._prompt_with_time()
        system = [{"role": "system", "content": prompt}] if prompt else []
        messages = [prepare(row) for row in rows]
        index = self._time_index(rows)
        if index is not None:
            messages[index] = dict(insert_into_message(messages[index], self.time))
        return system + messages

    @property
    def _system(self) -> int:
        return self.row_cost.count(self.prompt)

    @property
    def _tools(self) -> int:
        definitions = json.dumps(list(self.tools), default=str)
        return self.row_cost.count(definitions) if self.tools else 0

    def _prompt_with_time(self) -> str:
        if not self.prompt or not self.time or self.config.datetime_in != "system":
            return self.prompt
        return insert_into_prompt(self.prompt, self.time)

    def _time_index(self, rows: Sequence[Row]) -> int | None:
        """Return the index of the message that date and time go into."""
        if not self.time or self.config.datetime_in != "message":
            return None
        return newest_user_message(rows)

    def _dynamic(self, rows: Sequence[Row]) -> int:
        index = self._time_index(rows)
        if index is None:
            return self.row_cost.count(self._prompt_with_time()) - self._system
        message = insert_into_message(prepare(rows[index]), self.time)
        return message_tokens(message, self.row_cost.count) - self.row_cost(rows[index])


def local_now() -> datetime:
    """Return the time in this machine's zone."""
    return datetime.now(UTC).astimezone()


def describe_time(now: datetime) -> str:
    """Return the line with date and time; ``now`` is in the zone of the reader."""
    return f"Current date: {now:%Y-%m-%d}, Current time: {now:%H:%M} (local)"


def session_start(now: datetime, details: Mapping[str, str] | None = None) -> str:
    """Return the text that a session starts with, with what else is known about it.

    It is one line, and role marks in the details are broken.
    """
    listed = "".join(f" | {name}: {value}" for name, value in (details or {}).items())
    known = without_marks(one_line(listed))
    return f"[Session started: {now:%Y-%m-%d %H:%M} (local){known}]"


#: The heading of a system prompt that date and time go below.
ENVIRONMENT: Final = "# Environment"


def insert_into_prompt(prompt: str, line: str) -> str:
    """Return a prompt with a line below its first heading "# Environment", else at its end."""
    lines = prompt.split("\n")
    for index, text in enumerate(lines, start=1):
        if text.rstrip() == ENVIRONMENT:
            return "\n".join([*lines[:index], line, *lines[index:]])
    return f"{prompt}\n\n{line}"


def newest_user_message(rows: Sequence[Row]) -> int | None:
    """Return the index of the newest message in which the user says something."""
    for index in reversed(range(len(rows))):
        if any(message.role is Role.HUMAN for message in read_messages(rows[index])):
            return index
    return None


def insert_into_message(row: Row, line: str) -> Row:
    """Return a message with a line before its text; after its parts, where results come first."""
    key = "parts" if "parts" in row else "content"
    value = row.get(key)
    if not is_list(value):
        return {**row, key: f"{line}\n\n{value or ''}"}
    part: object = {"type": "text", "text": line}
    if key == "parts":
        plain = all(isinstance(part, str) for part in value)
        part = line if plain else {"text": line}
    return {**row, key: [*value, part]}
