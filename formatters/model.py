"""The shapes that facts and context take on their way from the store to the model.

Everything here is frozen: a step that changes something returns a new value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

#: A row of history as stores and callers hold it: ``id``, ``run_id``, ``role``, ``content``,
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
    """Who speaks. ``user`` is read as human and ``assistant`` as AI; all else is OTHER."""

    HUMAN = "human"
    AI = "ai"
    TOOL = "tool"
    OTHER = "other"


class Passage(NamedTuple):
    """A piece of a conversation, as it is searched."""

    text: str
    speaker: Role
    #: Aware, or None where it is not known.
    at: datetime | None = None


#: Score passages, oldest first, by what they tell about a question; the higher, the more. The
#: moment of the question says what "yesterday" is.
Ranker = Callable[[str, Sequence[Passage], datetime | None], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that an AI message asked for."""

    id: str | None
    name: str
    #: None where the arguments could not be read.
    arguments: Mapping[str, object] | None = None
    #: The arguments as the JSON text that they came in; None where they came as an object.
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A row of history, read."""

    id: str
    role: Role
    content: str
    #: True where the row has parts that are neither text nor image; ``content`` lacks them.
    partial: bool = False
    run_id: str | None = None
    #: Aware, or None where the row has none that can be read.
    timestamp: datetime | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    #: What a provider wants back as it came, such as signed thinking; nothing here looks inside.
    provider_parts: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message as it is sent, in OpenAI's chat form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    #: Of an assistant: each with an id, and with ``text``, the JSON of an object.
    tool_calls: tuple[ToolCall, ...] = ()
    #: Of a tool: the call that it answers.
    tool_call_id: str | None = None
    provider_parts: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was said in a stretch of history, in few words; kept beside the rows that it covers."""

    id: str
    owner_key: str
    #: The conversation that it was made in; None where that is all of the owner's history.
    conversation_id: str | None = None
    text: str
    #: The rows that it covers, in their order.
    message_ids: tuple[str, ...]
    #: Of the rows that it covers, where they have any.
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    #: Always 1: it is made from rows, never from a summary.
    generation: int = 1
    #: Tokens of the text.
    tokens: int
    created: datetime
    #: What made it.
    summarizer: str
    #: Of the contents of the rows that it covers, as they were.
    fingerprint: str
    #: The same ids, to look them up.
    covers: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "covers", frozenset(self.message_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """How history is shown."""

    #: Printed rows at most; None for no limit, 0 for an empty block.
    limit: int | None = 20
    #: Characters a message at most, before merging; None for no limit.
    message_chars: int | None = 500
    #: The zone of the times shown, in minutes west of UTC.
    minutes_west: int = 0
    #: Whether the header of `[SHARED_MEMORY]` counts rows, and so is another one each turn.
    header: Literal["counted", "still"] = "counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a context is made of, gathered before anything is rendered."""

    current_input: str
    #: The text of the system message; None for the shipped one.
    identity: str | None = None
    #: Reminders of the operator that are due now.
    injections: tuple[str, ...] = ()
    #: The moment of the request in the client's zone; None leaves the time out.
    now: datetime | None = None
    #: Oldest first, without the current run.
    history: tuple[Message, ...] = ()
    #: Whether there is more history than was read.
    more_history: bool = False
    #: Tokens of all the history before a message, by its id; only for what goes by them.
    starts: Mapping[str, int] = field(default_factory=dict)
    #: Summaries of the history, by age; no strategy but those that use them is given any.
    summaries: tuple[Summary, ...] = ()
    #: The run so far behind the current input: calls and their results, oldest first.
    run: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    profile: Mapping[str, object] = field(default_factory=dict)
    #: The profile text of the configuration, for owners who have none.
    default_profile: str = ""
    #: Blocks that the request brought along: tag to text.
    blocks: Mapping[str, str] = field(default_factory=dict)
    layout: Literal["tagged", "chat"] = "tagged"
    memory: MemoryView = MemoryView()
    #: Whether older rows may be recalled beside the newest turns.
    recalls: bool = False

    @property
    def tags(self) -> frozenset[str]:
        """Return the tags that this build adds to the built-in ones, for the guard."""
        return frozenset(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A piece of a block that is kept or dropped whole."""

    text: str
    #: The rows of history that it stands for, in their order.
    messages: tuple[Message, ...] = ()
    #: How many rows it prints, for ``count=N``; of native messages, how many there are.
    rows: int = 0
    #: The messages that it is sent as, in a native block; its text is empty then.
    native: tuple[ChatMessage, ...] = ()
    #: Where tool results that may be cleared stand in ``native``, by the id of their row.
    results: Mapping[str, int] = field(default_factory=dict)
    #: Rows that were mended to be sent, and for which reason of `service.budget.decisions`.
    repairs: Mapping[str, str] = field(default_factory=dict)
    #: True where a message in it was cut to the limit of characters.
    cut: bool = False
    #: Smaller texts to fall back on, largest first.
    shorter: tuple[str, ...] = ()
    #: True where it will be another in a later build, as when a result has been made up for now.
    volatile: bool = False
    #: Give the same entry with at most n characters a message.
    shorten: Callable[[int], "Entry"] | None = None
    #: Characters of its longest message: the n from which ``shorten`` changes nothing.
    longest: int = 0
    #: The line that it stands under, once for neighbours that share it.
    day: str = ""
    #: What it is searched by, where it may be recalled.
    passage: Passage | None = None


@dataclass(frozen=True, slots=True)
class SummaryForm:
    """Summaries as they are shown together, in one entry."""

    entry: Entry
    #: The rows that each of them covers.
    covers: tuple[frozenset[str], ...]
    #: True where they cover rows that no entry shows, whatever the budget.
    beyond: bool = False

    def covers_all(self, message_ids: Iterable[str]) -> bool:
        """Tell whether each of these rows is covered."""
        return all(any(id_ in each for each in self.covers) for id_ in message_ids)


#: The reason for rows that are older than the newest ``memory_limit``.
BEYOND_LIMIT: Final = "memory_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """Rows of history that a block left out before any budget was asked."""

    message_ids: tuple[str, ...]
    #: A reason code of `service.budget.decisions`.
    reason: str


class TrimPolicy(StrEnum):
    """How a block yields when the budget is short."""

    NEVER = "never"
    #: Tool results are cleared, then entries go, the oldest first; the newest stays as it is.
    ALL_BUT_NEWEST = "all_but_newest"
    #: Entries go as the chosen strategy decides.
    BY_STRATEGY = "by_strategy"
    #: Entries come in as they score, into the tokens that history leaves.
    BY_SCORE = "by_score"
    #: The block goes as a whole.
    WHOLE = "whole"
    #: Entries take their shorter texts, last entry first.
    BY_DETAIL = "by_detail"
    #: The end of its only entry is cut.
    BY_TAIL = "by_tail"


#: Stands in a header where the number of printed rows goes once it is known.
COUNT_MARK = "count=N"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A tagged part of the context, kept in pieces until the budget has been applied."""

    tag: str
    entries: tuple[Entry, ...]
    header: str = ""
    #: Stands in place of the entries where there are none.
    placeholder: str = ""
    #: The same, where the budget took the last entry.
    placeholder_when_cut: str = ""
    role: Literal["system", "user"] = "user"
    gives_way: TrimPolicy = TrimPolicy.NEVER
    #: True where each entry opens with a fixed literal, so that token counts add up.
    additive: bool = False
    #: True where its entries are messages of their own, and it has no text.
    native: bool = False
    #: True where it shares the message of the block before it.
    joins: bool = False
    #: True where its text changes from build to build, so that a provider's cache ends here.
    volatile: bool = False
    #: True where older rows are left out, so that its first entry is another one in each build.
    moves: bool = False
    #: Tokens of all the history before a message, by its id, as far as they are known.
    starts: Mapping[str, int] = field(default_factory=dict)
    #: Those that this build adds to the built-in ones, for the guard.
    tags: frozenset[str] = frozenset()
    omissions: tuple[Omission, ...] = ()
    #: What may stand for entries that are left out: all summaries, then fewer, the oldest first.
    forms: tuple[SummaryForm, ...] = ()

    @property
    def heading(self) -> str:
        """Return the header with the number of printed rows written in."""
        rows = sum(entry.rows for entry in self.entries)
        return self.header.replace(COUNT_MARK, f"count={rows}")

    @property
    def text(self) -> str:
        """Return the block as it is sent; nothing where its entries are messages of their own."""
        body = "\n".join(entry.text for entry in self.entries)
        return self.heading + (body if self.entries else self.placeholder)


#: Show facts as a block.
Formatter = Callable[[Facts], Block]
