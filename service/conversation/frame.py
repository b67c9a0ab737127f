"""The parts around the messages of a context: prompt, tools and time; and their tokens."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from formatters.guard import one_line
from formatters.model import Role, Row, ToolCall
from formatters.rows import is_list, truncate
from service.conversation.context_config import ContextConfig
from service.conversation.messages import is_summary
from service.conversation.sending import RowCosts
from service.conversation.shapes import read_messages

Clock = Callable[[], datetime]


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
    #: The tool definitions as JSON; empty for none.
    tools: str
    #: Date and time; empty for none.
    time: str

    def room(self, rows: Sequence[Row]) -> int:
        """Return the tokens that are left for messages, given all messages."""
        return self.config.available - self.row_cost.fixed - sum(self._overhead(rows))

    def usage(self, rows: Sequence[Row]) -> TokenUsage:
        """Return the tokens of a context with these messages."""
        system, tools, dynamic = self._overhead(rows)
        messages = self.row_cost.fixed + sum(map(self.row_cost, rows))
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
        prompt, index = self._insert_time(rows)
        system = [{"role": "system", "content": prompt}] if prompt else []
        messages = [*map(self.row_cost.prepared, rows)]
        if index is not None:
            messages[index] = dict(insert_into_message(messages[index], self.time))
        return system + messages

    def _overhead(self, rows: Sequence[Row]) -> tuple[int, int, int]:
        """Return the tokens of the system prompt, of the tools, and of date and time."""
        count = self.row_cost.count
        system, tools = count(self.prompt), count(self.tools) if self.tools else 0
        prompt, index = self._insert_time(rows)
        if index is None:
            return system, tools, count(prompt) - system
        message = insert_into_message(self.row_cost.prepared(rows[index]), self.time)
        return system, tools, self.row_cost.count_sent(message) - self.row_cost(rows[index])

    def _insert_time(self, rows: Sequence[Row]) -> tuple[str, int | None]:
        """Return the prompt, with date and time or with the message that they go into instead."""
        if self.time and self.config.datetime_in == "message":
            return self.prompt, newest_user_message(rows)
        if self.time and self.prompt:
            return insert_into_prompt(self.prompt, self.time), None
        return self.prompt, None


def local_now() -> datetime:
    """Return the time in this machine's zone."""
    return datetime.now(UTC).astimezone()


def describe_time(now: datetime) -> str:
    """Return the line with date and time; ``now`` is in the zone of the reader."""
    return f"Current date: {now:%Y-%m-%d}, Current time: {now:%H:%M} (local)"


def session_start(now: datetime, details: Mapping[str, str] | None = None) -> str:
    """Return the line that a session starts with, with what else is known about it."""
    listed = "".join(f" | {name}: {value}" for name, value in (details or {}).items())
    return f"[Session started: {now:%Y-%m-%d %H:%M} (local){one_line(listed)}]"


def insert_into_prompt(prompt: str, line: str) -> str:
    """Return a prompt with a line below its first heading "# Environment", else at its end."""
    lines = prompt.split("\n")
    for index, text in enumerate(lines, start=1):
        if text.rstrip() == "# Environment":
            return "\n".join([*lines[:index], line, *lines[index:]])
    return f"{prompt}\n\n{line}"


def newest_user_message(rows: Sequence[Row]) -> int | None:
    """Return the index of the newest message with the user's own words; no summary counts."""
    for index in reversed(range(len(rows))):
        is_human = any(message.role is Role.HUMAN for message in read_messages(rows[index]))
        if is_human and not is_summary(rows[index]):
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


#: Most characters of the line about a call, and of a value in it, by NEXUS3.
MAX_LINE: Final = 120
MAX_VALUE: Final = 50

#: Arguments that are too long or meaningless to a reader.
_OMITTED: Final = frozenset({"_parallel", "content", "new_content", "code"})


def describe_call(tool_call_id: str, rows: Sequence[Row]) -> str:
    """Return a line about a call for its result: ``[#1: search(q="x")]`` (NEXUS3's form).

    Calls are numbered within their message. Of several calls with one id, the newest is used; the
    line is empty if there is none.
    """
    for row in reversed(rows):
        for message in read_messages(row):
            for number, call in enumerate(message.tool_calls, start=1):
                if call.id == tool_call_id:
                    line = f"#{number}: {call.name}({', '.join(_describe_arguments(call))})"
                    return f"[{truncate(one_line(line), MAX_LINE)}]"
    return ""


def _describe_arguments(call: ToolCall) -> Iterator[str]:
    for name, value in (call.arguments or {}).items():
        if name not in _OMITTED:
            written = json.dumps(value, ensure_ascii=False, default=str)
            yield f"{name}={truncate(written, MAX_VALUE)}"
