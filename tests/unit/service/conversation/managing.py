"""What the tests of the manager share: a clock that is stopped, a log, and a summariser."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from formatters.model import Message, Row
from service.budget.estimates import SimpleTokenCounter
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.messages import AnyCall
from service.errors import SummarizerError

#: The fixed time of the manager's clock.
MOMENT = datetime(2026, 1, 13, 14, 30, tzinfo=UTC)

#: The line that states it.
LINE = "Current date: 2026-01-13, Current time: 14:30 (local)"

SIMPLE = SimpleTokenCounter()


def manager(
    config: ContextConfig | None = None, *, available: int | None = None, **options: Any
) -> ContextManager:
    """Return a manager that counts four characters for a token."""
    if available is not None:
        config = ContextConfig(max_tokens=available + 1, reserve_tokens=1)
    given = {"token_counter": SIMPLE, "clock": lambda: MOMENT, **options}
    return ContextManager(config, **given)


def contents(messages: Sequence[Row]) -> list[Any]:
    """Return what messages say."""
    return [message["content"] for message in messages]


def numbered(number: int) -> str:
    """Return a text of 36 characters, which is a message of 13 tokens."""
    return f"{number:02}".ljust(36, "x")


class Log:
    """Remembers what it hears, in its order."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def log_system(self, content: str) -> None:
        """Hear the system prompt."""
        self.heard.append(("system", content))

    def log_user(self, content: str) -> None:
        """Hear the user."""
        self.heard.append(("user", content))

    def log_assistant(self, content: str, tool_calls: Sequence[AnyCall]) -> None:
        """Hear the model."""
        self.heard.append(("assistant", content, len(tool_calls)))

    def log_tool_result(self, tool_call_id: str, name: str, result: str) -> None:
        """Hear a tool."""
        self.heard.append(("tool", tool_call_id, name, result))


class WarnedLog(Log):
    """Hears warnings as well."""

    def log_warning(self, message: str) -> None:
        """Hear a warning."""
        self.heard.append(("warning", message))


class Summariser:
    """Returns what a test sets, and records its input."""

    name = "fake"

    def __init__(self, text: str = "In short.") -> None:
        self.text = text
        self.given: list[list[Message]] = []
        self.most: list[int] = []

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the text."""
        self.given.append(list(messages))
        self.most.append(max_tokens)
        return self.text


class Failing(Summariser):
    """Never makes a summary."""

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Fail."""
        raise SummarizerError("the model is down")


class Waiting(Summariser):
    """Waits to be let go on, so that something can happen meanwhile."""

    def __init__(self, text: str = "In short.") -> None:
        super().__init__(text)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the text once it may."""
        self.asked.set()
        await self.go.wait()
        return await super().summarize(messages, max_tokens=max_tokens)
