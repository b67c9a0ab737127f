"""What stands around the messages of a context: prompt, tools and time; and what all costs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from formatters.model import Count, Row, Tool
from service.conversation.context_config import ContextConfig
from service.conversation.moment import in_message, in_prompt, newest_of_user
from service.conversation.sending import message_tokens, sent


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
    count: Count
    prompt: str
    tools: Sequence[Tool]
    #: Date and time; empty for none.
    line: str

    def price(self, row: Row) -> int:
        """Return what a message costs as it is sent."""
        return message_tokens(sent(row), self.count)

    def room(self, rows: Sequence[Row]) -> int:
        """Return the tokens that are left for messages, of which these are all."""
        usage = self.usage(rows)
        return usage["available"] - usage["total"] + usage["messages"]

    def usage(self, rows: Sequence[Row]) -> TokenUsage:
        """Return what a context of these messages costs."""
        system = self.count(self.prompt)
        tools = self.count(json.dumps(list(self.tools), default=str)) if self.tools else 0
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
            return self.count(self._prompt()) - self.count(self.prompt)
        said = sent(rows[place])
        cost = message_tokens(in_message(said, self.line), self.count)
        return cost - message_tokens(said, self.count)
