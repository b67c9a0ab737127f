"""Interfaces of the tools, prompts, tokenizers, summarizers and embedders that the service uses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from formatters.model import Message, Tool
from prompts.system_prompt import SystemPrompt


class ToolRegistry(Protocol):
    """The tools that can be offered to models, in the order of their registration."""

    @property
    def version(self) -> int:
        """A number that changes with the definitions; reading it never blocks."""

    @property
    def stale(self) -> Sequence[str]:
        """The sources that don't answer; the tools that they listed last are used."""

    def get_tool_definition(self, name: str) -> Tool | None:
        """Return one definition, or None."""

    def get_all_tool_definitions(self) -> list[Tool]:
        """Return all definitions."""


@dataclass(frozen=True, slots=True)
class ToolSource:
    """A file or a module that holds tool definitions."""

    name: str
    #: Returns its tools; raises `ToolError`, which names the location of the problem.
    read: Callable[[], list[Tool]]


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools that a server lists, or the reason it lists none."""

    name: str
    tools: Sequence[Tool] = ()
    #: Definitions that can't be offered: one sentence each, with location and cause.
    refused: Sequence[str] = ()
    #: The reason of a failure; None if the tools were listed.
    error: str | None = None


class Prompts(Protocol):
    """The operator's prompts, which may change while the service runs."""

    @property
    def current(self) -> SystemPrompt:
        """The prompts in effect; reading them never blocks."""

    async def refresh(self) -> None:
        """Reload changed prompts; those that can't be read stay as they are. Never raises."""


class TokenCounter(Protocol):
    """Counts tokens as a model's tokenizer does."""

    @property
    def name(self) -> str:
        """The tokenizer's name, such as ``o200k_base``."""

    @property
    def exact(self) -> bool:
        """False where counts are estimates."""

    def count(self, text: str) -> int:
        """Return the number of tokens; never raises."""


#: Returns a counter; the first call may load it.
LoadCounter = Callable[[], TokenCounter]


class Tokenizers(Protocol):
    """Finds counters by the names of tokenizers."""

    def counter(self, tokenizer: str) -> TokenCounter:
        """Return the counter, or one that estimates if the tokenizer is unavailable."""


class Summarizer(Protocol):
    """Summarizes messages. Raises `SummarizerError` only."""

    @property
    def name(self) -> str:
        """The name of the model or the method that writes the summaries."""

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return a summary of at most ``max_tokens``; messages are given oldest first.

        All messages are summarized, however many there are. None is itself a summary.
        """


#: A text as numbers: the smaller the angle between two vectors, the more similar are the texts.
Vector = Sequence[float]

#: Return how similar a question is to each of some rows. Those of the rows are packed, see
#: `service.build.similarity`, and as long as the question's; at least one.
CompareVectors = Callable[[Vector, Sequence[bytes]], Sequence[float]]


class Embedder(Protocol):
    """Computes vectors of texts. Raises `EmbedderError` only."""

    @property
    def name(self) -> str:
        """The name of the model; vectors of another model are computed again."""

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> Sequence[Vector]:
        """Return a vector for each text, all of one length; of a long text only the start counts.

        Some models treat a ``question`` unlike possible answers. Raises `NoVectorError` if a
        text is refused, such as a question in a language that the model doesn't know.
        """
