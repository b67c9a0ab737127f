"""What stands around the messages of a context: prompt, tools and time; and what all costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from formatters.guard import one_line, without_marks
from formatters.model import Role, Row, Tool
from service.conversation.context_config import ContextConfig
from service.conversation.sending import Prices, message_tokens, sent
from service.conversation.shapes import shape_of

#: The heading of a system prompt below which the moment goes.
ENVIRONMENT: Final = "# Environment"


def local_now() -> datetime:
    """Return the time in this machine's zone."""
    return datetime.now(UTC).astimezone()


def moment_line(now: datetime) -> str:
    """Return the line that tells date and time; ``now`` is in the zone of the reader."""
    return f"Current date: {now:%Y-%m-%d}, Current time: {now:%H:%M} (local)"


def session_start(now: datetime, details: Mapping[str, str] | None = None) -> str:
    """Return the text that a session starts with, and what else is known about it.

    It is one line, and role marks in what is known are broken.
    """
    told = "".join(f" | {name}: {value}" for name, value in (details or {}).items())
    known = without_marks(one_line(told))
    return f"[Session started: {now:%Y-%m-%d %H:%M} (local){known}]"


def in_prompt(prompt: str, line: str) -> str:
    """Put a line below the first heading "# Environment" of a prompt, else at its end."""
    lines = prompt.split("\n")
    headings = [place for place, each in enumerate(lines) if each.rstrip() == ENVIRONMENT]
    if not headings:
        return f"{prompt}\n\n{line}"
    lines.insert(headings[0] + 1, line)
    return "\n".join(lines)


def newest_of_user(rows: Sequence[Row]) -> int | None:
    """Return the place of the newest message in which a user says something."""
    for place in reversed(range(len(rows))):
        said = shape_of(rows[place]).read(rows[place], "")
        if any(message.role is Role.HUMAN for message in said):
            return place
    return None


def in_message(row: Row, line: str) -> Row:
    """Put a line before what a message says; behind its parts, since results come first there."""
    key = "parts" if "parts" in row else "content"
    value = row.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        plain = key == "parts" and all(isinstance(part, str) for part in value)
        return {**row, key: [*value, line if plain else _part(line, key)]}
    return {**row, key: f"{line}\n\n{value or ''}"}


def _part(line: str, key: str) -> Row:
    return {"text": line} if key == "parts" else {"type": "text", "text": line}


class TokenUsage(TypedDict):
    """Tokens of a context, and of what it may have."""

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
    #: The window without what is reserved for the answer.
    available: int
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """All of a context but its messages."""

    config: ContextConfig
    #: Remembers what messages cost.
    price: Prices
    prompt: str
    tools: Sequence[Tool]
    #: Date and time; empty for none.
    line: str

    def room(self, rows: Sequence[Row]) -> int:
        """Return the tokens that are left for messages, of which these are all."""
        return self.config.available - self._system - self._tools - self._dynamic(rows)

    def usage(self, rows: Sequence[Row]) -> TokenUsage:
        """Return what a context of these messages costs."""
        system, tools = self._system, self._tools
        messages = sum(map(self.price, rows))
        dynamic = self._dynamic(rows)
        total = system + tools + messages + dynamic
        available = self.config.available
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
        prompt = self._prompt()
        system = [{"role": "system", "content": prompt}] if prompt else []
        said = [sent(row) for row in rows]
        place = self._place(rows)
        if place is not None:
            said[place] = dict(in_message(said[place], self.line))
        return system + said

    @property
    def _system(self) -> int:
        return self.price.count(self.prompt)

    @property
    def _tools(self) -> int:
        definitions = json.dumps(list(self.tools), default=str)
        return self.price.count(definitions) if self.tools else 0

    def _prompt(self) -> str:
        if not self.prompt or not self.line or self.config.datetime_in != "system":
            return self.prompt
        return in_prompt(self.prompt, self.line)

    def _place(self, rows: Sequence[Row]) -> int | None:
        """Return the place of the message that date and time go into."""
        if not self.line or self.config.datetime_in != "message":
            return None
        return newest_of_user(rows)

    def _dynamic(self, rows: Sequence[Row]) -> int:
        place = self._place(rows)
        if place is None:
            return self.price.count(self._prompt()) - self._system
        said = in_message(sent(rows[place]), self.line)
        return message_tokens(said, self.price.count) - self.price(rows[place])
