"""What the service needs from the world besides the bus: stores, tools, counters, summarizers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from formatters.model import Message, Row, Tool
from prompts.system_prompt import SystemPrompt
from service.marks import Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """The newest rows of a history, newest first."""

    rows: Sequence[Row] = ()
    #: Rows that the history holds in all, read or not.
    total: int = 0
    #: Of each row, the tokens of all that stand before it: the same in every page, but for rows
    #: that were put or pruned before it. Empty where a store doesn't tell. As text, and as native
    #: messages, where calls and their results count too.
    starts: Sequence[int] = ()
    native_starts: Sequence[int] = ()


class HistoryStore(Marks, Protocol):
    """Conversations by owner. Raises `StoreError`; never shows one owner's rows to another."""

    async def append(
        self, owner_key: str, messages: Sequence[Row], *, conversation_id: str | None = None
    ) -> int:
        """Store rows in their order; returns how many were new.

        Idempotent by owner and row id: a row that is stored already is left as it is. A row's own
        ``conversation_id`` goes before the argument.
        """
        ...

    async def recent(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
    ) -> HistoryPage:
        """Return the newest rows, ordered by timestamp, then by sequence; newest first.

        Reading stops after ``max_rows`` rows, or with the first row at which the rows' tokens
        reach ``max_tokens``. No conversation reads all of the owner's; pruned rows never count.
        """
        ...

    async def search(
        self,
        owner_key: str,
        conversation_id: str | None = None,
        *,
        terms: Sequence[str],
        before: str,
        max_rows: int,
    ) -> list[Row]:
        """Return the rows that terms of `service.recall.terms` tell of, with those around them.

        ``max_rows`` at most, the newest first, all of them older than the row with the id
        ``before``. What is read does not grow with the history: of terms that too many rows have
        only those rows count that have another one too.
        """
        ...

    async def rows(self, owner_key: str, ids: Sequence[str]) -> list[Row]:
        """Return the owner's rows with these ids, in their order; pruned ones too."""
        ...

    async def get_history(self, owner_key: str, limit: int) -> list[Row]:
        """Return the newest rows of all the owner's conversations, newest first."""
        ...

    async def erase(self, owner_key: str) -> int:
        """Delete all rows of an owner, with marks, archive and summaries; returns how many rows.

        The profile is the `ProfileStore`'s to erase.
        """
        ...

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete the oldest rows from before a moment, ``limit`` at most; returns how many.

        A row goes with its marks and the summaries that cover it; its copy in the archive stays.
        What is left is as if the others had never been. 0 means that no such row was found.
        """
        ...

    async def expire_archive(self, before: datetime, limit: int) -> int:
        """Delete copies that were archived before a moment, ``limit`` at most; returns how many."""
        ...


class ProfileStore(Protocol):
    """What is remembered about an owner. Raises `StoreError`."""

    async def get(self, owner_key: str) -> Mapping[str, object]:
        """Return the owner's profile (``prompt_overrides``, ``created_at``), or an empty one."""
        ...

    async def put(self, owner_key: str, profile: Mapping[str, object]) -> None:
        """Replace the owner's profile."""
        ...

    async def erase(self, owner_key: str) -> bool:
        """Delete the owner's profile; returns whether there was one."""
        ...


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
