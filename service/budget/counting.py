"""Tokens of messages by themselves, as NEXUS3's counters take them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from formatters.model import Block, ChatMessage, Count, Entry, Message, ToolCall
from formatters.render import BLOCK_SEPARATOR, group_by_message
from formatters.rows import read_content, read_tool_calls

#: Tokens that every message costs besides its content, by the source systems' convention.
MESSAGE_OVERHEAD: Final = 4


class Estimate(ABC):
    """A counter that rounds, and does so once for texts that are sent as one."""

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.joined((text,))

    __call__ = count

    @abstractmethod
    def joined(self, texts: Iterable[str]) -> int:
        """Return the tokens of texts in one piece, cut where counts add up."""


class Counter(Protocol):
    """Counts the tokens of a text."""

    def count(self, text: str, /) -> int:
        """Return the number of tokens."""
        ...


def count_function(counter: Counter) -> Count:
    """Return how a counter counts blocks: a text at a time, or rounding once for a whole."""
    return counter if isinstance(counter, Estimate) else counter.count


def measure(blocks: Iterable[Block], count: Count) -> dict[str, int]:
    """Return the tokens of each block by its tag; their sum is what all messages cost.

    Of a message that several blocks share, each has what the text up to its end counts more than
    the text up to its start; the first has the overhead. Raises `ValueError` for a tag twice.
    """
    sizes: dict[str, int] = {}
    for tag, size in (
        pair for shared in group_by_message(blocks) for pair in _sizes(shared, count)
    ):
        if tag in sizes:
            raise ValueError(f"two blocks have the tag {tag}")
        sizes[tag] = size
    return sizes


def block_tokens(block: Block, count: Count) -> int:
    """Return the tokens of the messages that carry this block alone."""
    return sum(measure((block,), count).values())


def entry_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry that another one follows."""
    return _native_tokens(entry, count) if entry.native else count(f"{entry.text}\n")


def last_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry that ends its block."""
    return _native_tokens(entry, count) if entry.native else count(entry.text)


def message_tokens(message: ChatMessage, count: Count) -> int:
    """Return the tokens of a native message: each of its texts by itself, and the overhead."""
    calls = (text for call in message.tool_calls for text in (call.name, call.text or ""))
    return MESSAGE_OVERHEAD + sum(map(count, (message.content, *calls)))


def _native_tokens(entry: Entry, count: Count) -> int:
    return sum(message_tokens(message, count) for message in entry.native)


def _sizes(shared: Sequence[Block], count: Count) -> Iterator[tuple[str, int]]:
    first = shared[0]
    if first.native:
        yield first.tag, sum(_native_tokens(entry, count) for entry in first.entries)
        return
    told = -MESSAGE_OVERHEAD
    before = _Text(count)
    for block in shared:
        upto = before.with_(_pieces(block, "")).tokens
        yield block.tag, upto - told
        told = upto
        if block is not shared[-1]:
            before = before.with_(_pieces(block, BLOCK_SEPARATOR))


def _pieces(block: Block, end: str) -> tuple[str, ...]:
    """Return a block's text, with what follows it, in pieces whose counts add up."""
    if not block.additive or not block.entries:
        return (f"{block.text}{end}",)
    *others, last = block.entries
    return (block.heading, *(f"{entry.text}\n" for entry in others), f"{last.text}{end}")


class _Text:
    """A text that is counted piece by piece, or by estimates that round as a whole."""

    def __init__(self, count: Count, tokens: int = 0, pieces: tuple[str, ...] = ()) -> None:
        self._count = count
        self._pieces = pieces
        self.tokens = tokens

    def with_(self, pieces: tuple[str, ...]) -> "_Text":
        """Return this text with another behind it."""
        if not isinstance(self._count, Estimate):
            return _Text(self._count, self.tokens + sum(map(self._count, pieces)))
        longer = (*self._pieces, *pieces)
        return _Text(self._count, self._count.joined(longer), longer)


#: A message that was read, one as it is sent, or one in OpenAI's chat form.
AnyMessage = Message | ChatMessage | Mapping[str, object]


def messages_tokens(messages: Iterable[AnyMessage], count: Count) -> int:
    """Return 4 for each message, and the tokens of its content and of its calls.

    Of a call, the name and the arguments count, each by itself, the arguments as Python writes
    JSON; ids are free.
    """
    return sum(MESSAGE_OVERHEAD + sum(map(count, _texts(message))) for message in messages)


def _texts(message: AnyMessage) -> Iterator[str]:
    if isinstance(message, Mapping):
        yield read_content(message.get("content"))
        calls = read_tool_calls(message.get("tool_calls"))
    else:
        yield message.content
        calls = message.tool_calls
    for call in calls:
        yield call.name
        yield _arguments(call)


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return call.text or ""
    return json.dumps(call.arguments)
