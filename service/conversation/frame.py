"""What stands around the messages of a context: prompt, tools and time; and what all costs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from formatters.model import Row, Tool
from service.conversation.context_config import ContextConfig
from service.conversation.moment import in_message, in_prompt, newest_of_user
from service.conversation.prices import Prices
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
