"""The values that a context is built from: rows, messages, turns, facts, entries and blocks.

All are frozen: a step that changes something returns a new value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

#: A row of history as stores and callers have it: ``id``, ``run_id``, ``role``, ``content``,
#: ``timestamp``, ``metadata``. Nothing in it is trusted; `formatters.rows` reads it.
Row = Mapping[str, object]

#: A tool as an OpenAI function definition: ``{"type": "function", "function": {…}}``.
Tool = Mapping[str, object]

#: Count the tokens of a text.
Count = Callable[[str], int]


class Tag:
    """The tags of the built-in blocks; usage, decisions and the guard know the blocks by these."""

    CORE_IDENTITY: Final = "CORE_IDENTITY"
    CAPABILITIES: Final = "CAPABILITIES"
    SHARED_MEMORY: Final = "SHARED_MEMORY"
    FRIENDS_INFO: Final = "FRIENDS_INFO"
    THIS_MOMENT: Final = "THIS_MOMENT"
    RECALLED: Final = "RECALLED"
    #: Summaries in place of older native history.
    SUMMARY: Final = "SUMMARY"
    #: Native history, in the chat layout.
    HISTORY: Final = "HISTORY"
    #: The run so far, as native messages.
    RUN: Final = "RUN"
    #: Not a block: the heading of a summary.
    CONTEXT_SUMMARY: Final = "CONTEXT SUMMARY"


class Role(StrEnum):
    """The speaker of a message. ``user`` is read as human, ``assistant`` as AI, others as OTHER."""

    HUMAN = "human"
    AI = "ai"
    TOOL = "tool"
    OTHER = "other"


class Passage(NamedTuple):
    """A piece of a conversation that is ranked by a question."""

    text: str
    speaker: Role
    #: Timezone-aware; None if unknown.
    at: datetime | None = None


#: Score passages, oldest first, by their relevance to a question; higher is more relevant. The
#: last argument is the time of the question, which "yesterday" refers to.
Ranker = Callable[[str, Sequence[Passage], datetime | None], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of an AI message."""

    id: str | None
    name: str
    #: None if the arguments could not be read.
    arguments: Mapping[str, object] | None = None
    #: The arguments as the JSON text that was received; None if they were received as an object.
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A row of history that has been read."""

    id: str
    role: Role
    content: str
    #: True if the row has parts that are neither text nor image; ``content`` lacks them.
    partial: bool = False
    run_id: str | None = None
    #: Timezone-aware; None if the row has no readable one.
    timestamp: datetime | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    #: What the provider needs back unchanged, such as signed thinking; never read here.
    provider_parts: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message as it is sent, in OpenAI's chat form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    #: Of an assistant. Each call has an id, and ``text`` with a JSON object.
    tool_calls: tuple[ToolCall, ...] = ()
    #: Of a tool: the id of the call that it answers.
    tool_call_id: str | None = None
    provider_parts: object = None


@dataclass(frozen=True, slots=True)
class Turn:
    """An optional human message, and the AI and tool messages that belong to it."""

    #: In order; a human message is the first.
    messages: tuple[Message, ...]
    #: The printed rows: the human message, then the answers. The answers of a run are one row,
    #: answers without a run a row each.
    rows: tuple[tuple[Message, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedHistory:
    """The turns of a history."""

    #: In order of their first message.
    turns: tuple[Turn, ...]
    #: Messages that belong to no turn: of an unknown role, or without text and calls.
    unprinted: tuple[Message, ...]

    @property
    def row_count(self) -> int:
        """Return the number of rows that the turns print."""
        return sum(len(turn.rows) for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary of consecutive rows of history; stored beside the rows, which stay."""

    id: str
    owner_key: str
    #: The conversation that it covers; None for the owner's whole history.
    conversation_id: str | None = None
    text: str
    #: The ids of the rows that it covers, in order.
    message_ids: tuple[str, ...]
    #: Of the rows that it covers, if they have timestamps.
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    #: Always 1: summaries are made from rows, never from other summaries.
    generation: int = 1
    #: Tokens of the text.
    tokens: int
    created: datetime
    #: The name of the summarizer that made it.
    summarizer: str
    #: A hash of the contents of the rows that it covers, at the time.
    fingerprint: str
    #: ``message_ids`` as a set.
    covers: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "covers", frozenset(self.message_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """How history is printed."""

    #: The most rows that are printed; None for no limit, 0 for an empty block.
    limit: int | None = 20
    #: The most characters of a message; None for no limit.
    message_chars: int | None = 500
    #: The time zone of printed times, in minutes west of UTC.
    minutes_west: int = 0
    #: "counted": the header of `[SHARED_MEMORY]` has the number of rows, and so changes each turn.
    header: Literal["counted", "still"] = "counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a context is built from, gathered before anything is rendered."""

    current_input: str
    #: The text of the system message; None for `CORE_IDENTITY`.
    identity: str | None = None
    #: The operator's reminders that are due now.
    injections: tuple[str, ...] = ()
    #: The time of the request in the client's zone; None omits the time.
    now: datetime | None = None
    #: Oldest first, without the current run.
    history: tuple[Message, ...] = ()
    #: The history grouped into turns, if that was done before.
    grouped: GroupedHistory | None = None
    #: Whether the store has older history that was not read.
    more_history: bool = False
    #: Tokens of all history before a message, by message id; only for strategies that use them.
    starts: Mapping[str, int] = field(default_factory=dict)
    #: Stored summaries, oldest first; only for strategies that use them.
    summaries: tuple[Summary, ...] = ()
    #: The messages of the run after the current input: calls and results, oldest first.
    run: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    #: The `[CAPABILITIES]` block of these tools, if it was formatted before.
    tools_block: "Block | None" = None
    profile: Mapping[str, object] = field(default_factory=dict)
    #: The configured profile text, for owners without one.
    default_profile: str = ""
    #: Custom blocks of the request: tag to text.
    blocks: Mapping[str, str] = field(default_factory=dict)
    layout: Literal["tagged", "chat"] = "tagged"
    memory: MemoryView = MemoryView()
    #: Whether older rows may be recalled in addition to the newest turns.
    recalls: bool = False

    @property
    def tags(self) -> frozenset[str]:
        """Return the tags of this build that aren't built in, for the guard."""
        return frozenset(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A piece of a block that is kept or dropped whole."""

    text: str
    #: The rows of history that it shows, in order.
    messages: tuple[Message, ...] = ()
    #: How many rows it prints, for ``count=N``; of a native block, the number of messages.
    rows: int = 0
    #: In a native block: the messages that it is sent as. Its text is empty then.
    native: tuple[ChatMessage, ...] = ()
    #: The index in ``native`` of each tool result that may be cleared, by the id of its row.
    results: Mapping[str, int] = field(default_factory=dict)
    #: The reason code of `service.budget.decisions` for each repaired row, by its id.
    repairs: Mapping[str, str] = field(default_factory=dict)
    #: True if a message in it was cut to the limit of characters.
    cut: bool = False
    #: Shorter texts to fall back on, longest first.
    shorter: tuple[str, ...] = ()
    #: True if it will change in a later build, as when a result is only a placeholder so far.
    volatile: bool = False
    #: Return the same entry with at most n characters per message.
    shorten: Callable[[int], "Entry"] | None = None
    #: Characters of its longest message: the n from which ``shorten`` changes nothing.
    longest: int = 0
    #: The day line above it, which neighbours of the same day share.
    day: str = ""
    #: The text by which it is ranked, if it may be recalled.
    passage: Passage | None = None


@dataclass(frozen=True, slots=True)
class SummaryForm:
    """Summaries that are shown together, as one entry."""

    entry: Entry
    #: The ids of the rows that each summary covers.
    covers: tuple[frozenset[str], ...]
    #: True if they cover rows that the block shows under no budget.
    beyond: bool = False

    def covers_all(self, message_ids: Iterable[str]) -> bool:
        """Return whether all of these rows are covered."""
        return all(any(id_ in covered for covered in self.covers) for id_ in message_ids)


#: The reason for rows that are older than the newest ``memory_limit``.
BEYOND_LIMIT: Final = "memory_limit"


@dataclass(frozen=True, slots=True)
class Omission:
    """Rows of history that a block omits whatever the budget."""

    message_ids: tuple[str, ...]
    #: A reason code of `service.budget.decisions`.
    reason: str


class TrimPolicy(StrEnum):
    """How a block is made smaller when the budget is short."""

    NEVER = "never"
    #: Tool results are cleared, then entries dropped, oldest first; the newest stays unchanged.
    ALL_BUT_NEWEST = "all_but_newest"
    #: The strategy chooses the entries that stay.
    BY_STRATEGY = "by_strategy"
    #: The entries that score highest fill the tokens that history leaves.
    BY_SCORE = "by_score"
    #: The block is dropped whole.
    WHOLE = "whole"
    #: Entries are replaced by their shorter texts, last entry first.
    BY_DETAIL = "by_detail"
    #: The end of the only entry is cut.
    BY_TAIL = "by_tail"


#: The placeholder in a header for the number of printed rows.
COUNT_MARK = "count=N"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A tagged part of the context, kept as entries until the budget has been applied."""

    tag: str
    entries: tuple[Entry, ...]
    header: str = ""
    #: The text of a block without entries.
    placeholder: str = ""
    #: The text of a block whose last entry was dropped for the budget.
    placeholder_when_cut: str = ""
    role: Literal["system", "user"] = "user"
    gives_way: TrimPolicy = TrimPolicy.NEVER
    #: True if each entry begins with a fixed literal, so that token counts add up.
    additive: bool = False
    #: True if its entries are sent as messages of their own; it has no text then.
    native: bool = False
    #: True if it is in the same message as the block before it.
    joins: bool = False
    #: True if its text changes with each build, so that a provider's cached prefix ends before it.
    volatile: bool = False
    #: True if older rows are omitted, so that its first entry changes with each build.
    moves: bool = False
    #: Tokens of all history before a message, by message id, as far as known.
    starts: Mapping[str, int] = field(default_factory=dict)
    #: The tags of this build that aren't built in, for the guard.
    tags: frozenset[str] = frozenset()
    omissions: tuple[Omission, ...] = ()
    #: The summaries that may replace omitted entries: first all of them, then without the oldest.
    forms: tuple[SummaryForm, ...] = ()

    @property
    def is_history(self) -> bool:
        """Return whether its entries are the history, which a strategy chooses from."""
        return self.gives_way is TrimPolicy.BY_STRATEGY

    @property
    def is_tools(self) -> bool:
        """Return whether its entries describe the tools."""
        return self.gives_way is TrimPolicy.BY_DETAIL

    @property
    def heading(self) -> str:
        """Return the header with the number of printed rows."""
        rows = sum(entry.rows for entry in self.entries)
        return self.header.replace(COUNT_MARK, f"count={rows}")

    @property
    def text(self) -> str:
        """Return the block as it is sent; empty if its entries are messages of their own."""
        body = "\n".join(entry.text for entry in self.entries)
        return self.heading + (body if self.entries else self.placeholder)


#: Formats facts as a block.
Formatter = Callable[[Facts], Block]
