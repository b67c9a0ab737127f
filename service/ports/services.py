"""What the service needs of tools, prompts, tokenizers and summarizers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from formatters.model import Message, Tool
from prompts.system_prompt import SystemPrompt


class ToolRegistry(Protocol):
    """The tools that may be offered to the model, in the order of their registration."""

    @property
    def version(self) -> int:
        """A new number after each change of the definitions; asking for it never blocks."""
        ...

    @property
    def stale(self) -> Sequence[str]:
        """The sources that don't answer: their tools are those of the last time, or none."""
        ...

    def get_tool_definition(self, name: str) -> Tool | None:
        """Return one definition, or None."""
        ...

    def get_all_tool_definitions(self) -> list[Tool]:
        """Return all definitions."""
        ...

    def list_tool_names(self) -> list[str]:
        """Return all names."""
        ...


@dataclass(frozen=True, slots=True)
class ToolSource:
    """A file or a module that holds tool definitions."""

    name: str
    #: Raises `ToolError` with the place of what is wrong.
    read: Callable[[], list[Tool]]


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What a server lists, or why it doesn't."""

    name: str
    tools: Sequence[Tool] = ()
    #: What of it can't be offered, a sentence each, with place and cause.
    refused: Sequence[str] = ()
    #: None where it was listed.
    error: str | None = None


class Prompts(Protocol):
    """What the operator has models told."""

    @property
    def current(self) -> SystemPrompt:
        """What it is now; asking for it never blocks."""
        ...

    async def refresh(self) -> None:
        """Look whether it has changed; what can't be read stays as it was. Never raises."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as a model's tokenizer does."""

    @property
    def name(self) -> str:
        """The tokenizer's name, such as ``o200k_base``."""
        ...

    @property
    def exact(self) -> bool:
        """False where counts are estimates."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens; any string counts, none raises."""
        ...


class Tokenizers(Protocol):
    """Finds the counter for a tokenizer's name."""

    def counter(self, tokenizer: str) -> TokenCounter:
        """Return the counter; one that estimates where the tokenizer is not to be had."""
        ...


class Summarizer(Protocol):
    """Puts in few words what was said. Raises `SummarizerError`, and nothing else."""

    @property
    def name(self) -> str:
        """What makes the summary: a model's name, or a method's."""
        ...

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary of messages given oldest first, of so many tokens at most.

        Every message is read, however many there are; none of them is itself a summary.
        """
        ...
