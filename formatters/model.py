"""The values that a context is built from: messages, facts, entries, blocks; and what is sent.

All are frozen: a step that changes something returns a new value.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar

from formatters.guard import GUARD, Guard

#: A row of history as stores and callers have it: ``id``, ``run_id``, ``role``, ``content``,
#: ``timestamp``, ``metadata``. Nothing in it is trusted; `formatters.rows` reads it.
Row = Mapping[str, object]

#: A tool as an OpenAI function definition: ``{"type": "function", "function": {…}}``.
Tool = Mapping[str, object]

#: Count the tokens of a text.
Count = Callable[[str], int]

P = ParamSpec("P")
T = TypeVar("T")

#: Values made of a frozen value, by the keys they were made with. They are cached with it, and end
#: with it: rows that are read once are guarded, formatted and counted once.
Made = dict[Hashable, object]

#: The most that is cached with one value. Builds of one history rarely differ in its form.
MAX_MADE: Final = 8


def cached(
    made: Made | None, key: Hashable, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what was made with a key before, or make and cache it, unless ``made`` is None."""
    if made is None:
        return make(*args, **kwargs)
    value = made.get(key)
    if value is None:
        value = add_cached(made, key, make(*args, **kwargs))
    return value  # type: ignore[return-value] # what the same function made


def add_cached(made: Made, key: Hashable, value: T) -> T:
    """Cache what was made with a key, in place of everything else if that is too much."""
    if len(made) >= MAX_MADE:
        made.clear()
    made[key] = value
    return value


class Tag:
    """The tags of the built-in blocks, also in usage and decisions."""

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


#: The names that no block of a request can have.
BUILT_IN_TAGS: Final = frozenset(tag for name, tag in vars(Tag).items() if name.isupper())


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
    #: How similar its vector is to the question's; None if that is unknown.
    similarity: float | None = None
    #: True if an earlier passage is of the same message.
    continues: bool = False
    #: True if the passage before it ends within a code block, which this one continues.
    continues_code: bool = False


#: Score passages, oldest first, by their relevance to a question; higher is more relevant. The
#: last argument is the time of the question, which "yesterday" refers to.
Ranker = Callable[[str, Sequence[Passage], datetime | None], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of an AI message. Calls are equal if their arguments have equal values."""

    id: str | None
    name: str
    #: None if the arguments could not be read.
    arguments: Mapping[str, object] | None = None
    #: The arguments as the JSON text that was received; None if they were received as an object.
    text: str | None = field(default=None, compare=False)


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
    #: Parts that the provider needs back unchanged, such as signed thinking; never read here.
    provider_parts: object = None
    #: Also of the messages after it that belong to it. None unless `keep_made` was called: what is
    #: made of a message may refer to it, and would wait for the garbage collector.
    made: Made | None = field(default=None, init=False, repr=False, compare=False)

    def keep_made(self) -> "Message":
        """Cache what is computed from the message until `forget_made`; return the message."""
        object.__setattr__(self, "made", {})
        return self

    def forget_made(self) -> None:
        """Drop what was cached with the message."""
        if self.made:
            self.made.clear()


#: Answers a call of a message that the service itself answers, such as a search for tools; None
#: for the calls of others.
AnswerCall = Callable[[Message, ToolCall], str | None]


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
    #: Of a tool: the short id that recalls it if it is cleared. Not sent otherwise.
    handle: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the message in its wire form; fields without a value have no key."""
        fields: dict[str, object] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            fields["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.text},
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        if self.provider_parts is not None:
            fields["provider_parts"] = self.provider_parts
        return fields


@dataclass(frozen=True, slots=True)
class Turn:
    """An optional human message, and the AI and tool messages that belong to it."""

    #: In order; a human message is the first.
    messages: tuple[Message, ...]
    #: The human message, then the answers: those of a run as one row, those without a run as a row
    #: each. Where results are printed, `formatters.rows.split_turn` splits rows at these.
    rows: tuple[tuple[Message, ...], ...]
    #: None if nothing is cached with its first message.
    made: Made | None = field(default=None, repr=False, compare=False)


def cached_of_turns(
    turns: Sequence[Turn], key: Hashable, make: Callable[..., T], *args: object
) -> list[T]:
    """Return what `cached` does for each turn, which is made of the turn and other arguments."""
    # mostly all of them; another thread may fill what is empty here
    found: list[Any] = [turn.made.get(key) if turn.made else None for turn in turns]
    return [
        value or cached(turn.made, key, make, turn, *args)
        for turn, value in zip(turns, found, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedHistory:
    """The turns of a history."""

    #: In order of their first message.
    turns: tuple[Turn, ...]
    #: Messages that belong to no turn: of an unknown role, without text and calls, or tool results
    #: whose call is not in their turn.
    unprinted: tuple[Message, ...]

    @property
    def row_count(self) -> int:
        """Return the number of rows that the turns print."""
        return sum(len(turn.rows) for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary of consecutive rows of history; stored with the rows, which stay."""

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
    summarizer: str
    #: A hash of the contents of the rows that it covers, at the time.
    fingerprint: str
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
    #: "printed": tool results are on lines of their own; "annotated": only their calls are shown;
    #: "recalled": results are printed in `[RECALLED]` only.
    tool_results: Literal["recalled", "annotated", "printed"] = "recalled"
    #: The most characters of a printed tool result; None for no limit.
    tool_result_chars: int | None = 500
    #: The time zone of printed times, in minutes west of UTC.
    minutes_west: int = 0
    #: "counted": the header of `[SHARED_MEMORY]` has the number of rows, and so changes each turn.
    header: Literal["counted", "still"] = "counted"
    #: The mark of the assistant's messages, as `Human` marks those of the user.
    assistant_name: str = "Nexus"

    def prints_result(self, result: Message) -> bool:
        """Return whether a tool result is on a line of its own."""
        return self.tool_results == "printed" and bool(result.content.strip())

    @property
    def form(self) -> tuple[Hashable, ...]:
        """Return what the text of a row depends on."""
        limits = (self.message_chars, self.tool_result_chars)
        return (*limits, self.tool_results, self.minutes_west, self.assistant_name)

    def recalling(self) -> "MemoryView":
        """Return the view of `[RECALLED]`."""
        return _print_results(self) if self.tool_results == "recalled" else self

    def limited_to(self, chars: int) -> "MemoryView":
        """Return the view with at most ``chars`` characters of each message."""
        limits = (self.message_chars, self.tool_result_chars)
        message, result = (chars if limit is None else min(chars, limit) for limit in limits)
        return replace(self, message_chars=message, tool_result_chars=result)


@lru_cache(maxsize=64)  # each build asks for the same one several times
def _print_results(view: MemoryView) -> MemoryView:
    return replace(view, tool_results="printed")


@dataclass(frozen=True, slots=True)
class PreviewLimit:
    """The number of tokens at which a text is cut to its beginning and its end."""

    tokens: int
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShown:
    """The messages that a context leaves out and that can be recalled."""

    messages: int
    #: Tool results, which are not among the messages.
    results: int
    #: The short id of the newest of them, or of the message after them; None if neither was read.
    handle: str | None


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
    #: How many messages of the history, the oldest, were found by a search, with gaps between them;
    #: None without a search.
    found: int | None = None
    #: Whether the history could not be read.
    history_failed: bool = False
    #: Tokens of all history before a message, by message id; only for strategies that use them.
    starts: Mapping[str, int] = field(default_factory=dict)
    #: How similar messages are to the input, by message id, as far as that is known.
    similarities: Mapping[str, float] = field(default_factory=dict)
    #: Stored summaries, oldest first; only for strategies that use them.
    summaries: tuple[Summary, ...] = ()
    #: The messages of the run after the current input: calls and results, oldest first.
    run: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    #: The tools that a search finds; ``tools`` are offered in their place.
    deferred: tuple[Tool, ...] = ()
    #: Answers the calls without results that the service answers itself.
    answer_call: AnswerCall | None = None
    #: How `[CAPABILITIES]` shows them: everything, their names, or no block at all.
    capabilities: Literal["full", "names", "none"] = "full"
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
    #: From how many tokens on native tool results are shown in part; None shows them whole.
    offload: PreviewLimit | None = None
    #: Whether the model can recall by itself, so that it gets the handles of what isn't shown.
    recall_tool: bool = False
    #: Ids of rows that no recall finds, so that they get no handle.
    unstored: frozenset[str] = frozenset()
    #: The rows that aren't shown, if the model is informed of them.
    not_shown: NotShown | None = None
    guard: Guard = GUARD

    @property
    def recalled_only(self) -> tuple[Message, ...]:
        """Return the messages that may be recalled, but don't belong to what was said last."""
        return self.history[: self.found or 0] if self.recalls else ()


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
    #: The reason code of `service.budget.decisions` for each row that isn't shown as it is, by its
    #: id: rows shown only as a call, rows that were cut, cleared or repaired.
    reasons: Mapping[str, str] = field(default_factory=dict)
    #: Shorter texts to fall back on, longest first.
    shorter: tuple[str, ...] = ()
    #: True if it will change in a later build, as when a result is only a placeholder so far.
    volatile: bool = False
    #: Return the same entry with at most n characters per message.
    shorten: Callable[[int], "Entry"] | None = None
    #: Of a turn in one text: return its last n answers, with the results of their calls.
    latest: Callable[[int], "Entry"] | None = None
    #: Characters of its longest message: the n from which ``shorten`` changes nothing.
    longest: int = 0
    #: The day line above it, which neighbours of the same day share.
    day: str = ""
    #: The text that it is ranked by, if it may be recalled.
    passage: Passage | None = None
    #: Of a row that is cut: forms that show a passage of it each, which may replace it.
    passages: tuple["Entry", ...] = ()
    #: Return the form that shows some of these passages, given by their indices in order.
    join: Callable[[Sequence[int]], "Entry"] | None = None
    #: Of a row that may be recalled: return forms that show a passage of at most n characters each.
    split: Callable[[int], tuple["Entry", ...]] | None = None
    made: Made = field(default_factory=dict, init=False, repr=False, compare=False)
    #: Its cost by the counter that counted it last: an ``EntryCost``, apart from ``made``
    #: since every build reads it from every entry.
    cost: object = field(default=None, init=False, repr=False, compare=False)


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
#: The reason for rows of which some newer ones are not shown.
OLDER: Final = "older"
#: The reasons for rows that a block omits, but that may be recalled.
RECALLABLE: Final = frozenset({BEYOND_LIMIT, OLDER})
#: The reason for tool results whose call may be in a row that was not read.
CALL_NOT_READ: Final = "call_not_read"


@dataclass(frozen=True, slots=True)
class Omission:
    """Rows of history that a block omits at any budget."""

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
    #: True if its first entry may be a part of a turn, of which older rows were not read.
    is_cut: bool = False
    #: Tokens of all history before a message, by message id, as far as known.
    starts: Mapping[str, int] = field(default_factory=dict)
    omissions: tuple[Omission, ...] = ()
    #: The summaries that may replace omitted entries: first all of them, then without the oldest.
    forms: tuple[SummaryForm, ...] = ()
    made: Made = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_history(self) -> bool:
        """Return whether its entries are the history, which a strategy chooses from."""
        return self.gives_way is TrimPolicy.BY_STRATEGY

    @property
    def is_tools(self) -> bool:
        """Return whether its entries describe the tools."""
        return self.gives_way is TrimPolicy.BY_DETAIL

    @property
    def has_text(self) -> bool:
        """Return whether it has something to send as a text: it is left out otherwise."""
        return bool(self.header or self.entries)

    @property
    def heading(self) -> str:
        """Return the header with the number of printed rows."""
        rows = sum([entry.rows for entry in self.entries])
        return self.header.replace(COUNT_MARK, f"count={rows}")

    @property
    def text(self) -> str:
        """Return the block as it is sent; empty if its entries are messages of their own."""
        body = "\n".join(entry.text for entry in self.entries)
        return self.heading + (body if self.entries else self.placeholder)


Formatter = Callable[[Facts], Block]

#: Separates blocks that share a message.
BLOCK_SEPARATOR: Final = "\n\n"


def render(blocks: Iterable[Block]) -> list[dict[str, object]]:
    """Return the messages of blocks, in order."""
    return [message for shared in group_by_message(blocks) for message in _messages(shared)]


def group_by_message(blocks: Iterable[Block]) -> list[list[Block]]:
    """Group the blocks that share a message."""
    shared: list[list[Block]] = []
    for block in blocks:
        if block.joins and shared:
            shared[-1].append(block)
        else:
            shared.append([block])
    return shared


def join_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Put blocks into one message."""
    return tuple(replace(block, joins=index > 0) for index, block in enumerate(blocks))


def _messages(shared: list[Block]) -> Iterator[dict[str, object]]:
    first = shared[0]
    if first.native:
        for message in (message for entry in first.entries for message in entry.native):
            sent = message.as_dict()
            if message.provider_parts is not None:
                sent["provider_parts"] = deepcopy(message.provider_parts)  # callers may change it
            yield sent
        return
    yield {"role": first.role, "content": BLOCK_SEPARATOR.join(block.text for block in shared)}
