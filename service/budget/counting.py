"""Count tokens: of blocks and their entries as they are sent, and of messages by themselves."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from formatters.model import COUNT_MARK, Block, ChatMessage, Count, Entry, Message, ToolCall
from formatters.native import clear_result
from formatters.render import BLOCK_SEPARATOR, group_by_message
from formatters.rows import read_content, read_tool_calls
from service.budget.groups import Group
from service.ports.services import TokenCounter

#: Tokens that every message costs besides its content, by the source systems' convention.
MESSAGE_OVERHEAD: Final = 4


class Estimate(ABC):
    """A counter that rounds its result, once for all texts that are sent as one."""

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.count_joined((text,))

    __call__ = count

    @abstractmethod
    def count_joined(self, texts: Iterable[str]) -> int:
        """Return the tokens of texts sent as one, which was split where exact counts add up."""


def count_function(counter: TokenCounter) -> Count:
    """Return the function that counts blocks; an estimate itself, which rounds once a message."""
    return counter if isinstance(counter, Estimate) else counter.count


# --- blocks and entries ----------------------------------------------------------------------


def measure(blocks: Iterable[Block], count: Count) -> dict[str, int]:
    """Return the tokens of each block by its tag; their sum is the cost of all messages.

    Where blocks share a message, a block costs the tokens of the text up to its end, less those of
    the text up to its start; the first one includes the message's overhead.

    Raises:
        ValueError: Two blocks have the same tag.
    """
    sizes: dict[str, int] = {}
    for sharing in group_by_message(blocks):
        for tag, size in _sizes(sharing, count):
            if tag in sizes:
                raise ValueError(f"two blocks have the tag {tag}")
            sizes[tag] = size
    return sizes


def block_tokens(block: Block, count: Count) -> int:
    """Return the tokens of the messages that carry this block alone."""
    return sum(measure((block,), count).values())


def fixed_tokens(block: Block, count: Count) -> int:
    """Return the cost of a block without its entries, with the largest row number it can show."""
    if block.native:
        return 0
    rows = sum(entry.rows for entry in block.entries)
    return MESSAGE_OVERHEAD + count(block.header.replace(COUNT_MARK, f"count={rows}"))


def entry_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry that is followed by another one."""
    return _native_tokens(entry, count) if entry.native else count(f"{entry.text}\n")


def last_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry at the end of its block."""
    return _native_tokens(entry, count) if entry.native else count(entry.text)


def make_groups(block: Block, count: Count) -> list[Group]:
    """Return a group with its costs for each entry of a block."""
    groups = []
    for index, entry in enumerate(block.entries):
        tokens = entry_tokens(entry, count)
        groups.append(
            Group(
                index=index,
                tokens=tokens,
                tokens_last=tokens if entry.native else last_tokens(entry, count),
                messages=entry.messages,
                size=entry.rows,
                savings=_savings(entry, count),
                start=block.starts.get(entry.messages[0].id) if entry.messages else None,
            )
        )
    return groups


def _savings(entry: Entry, count: Count) -> Mapping[str, int]:
    """Return the tokens that clearing each tool result would save, by the id of its message."""
    savings = {}
    for id_, index in entry.results.items():
        message = entry.native[index]
        saved = message_tokens(message, count) - message_tokens(clear_result(message), count)
        if saved > 0:
            savings[id_] = saved
    return savings


def _sizes(sharing: Sequence[Block], count: Count) -> Iterator[tuple[str, int]]:
    """Yield tag and tokens of the blocks that share a message."""
    first = sharing[0]
    if first.native:
        yield first.tag, sum(_native_tokens(entry, count) for entry in first.entries)
        return
    preceding = _Preceding(count)
    reported = -MESSAGE_OVERHEAD
    for block in sharing:
        up_to_end = preceding.tokens_with(_pieces(block, ""))
        yield block.tag, up_to_end - reported
        reported = up_to_end
        if block is not sharing[-1]:
            preceding.add(_pieces(block, BLOCK_SEPARATOR))


def _pieces(block: Block, ending: str) -> tuple[str, ...]:
    """Split a block's text, and what follows it, where the counts of the pieces add up."""
    if not block.additive or not block.entries:
        return (f"{block.text}{ending}",)
    *others, last = block.entries
    return (block.heading, *(f"{entry.text}\n" for entry in others), f"{last.text}{ending}")


class _Preceding:
    """The beginning of a message, counted piece by piece, or as a whole by an estimate."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._pieces: tuple[str, ...] = ()
        self._tokens = 0

    def tokens_with(self, pieces: tuple[str, ...]) -> int:
        """Return the tokens of the beginning followed by these pieces."""
        if isinstance(self._count, Estimate):
            return self._count.count_joined((*self._pieces, *pieces))
        return self._tokens + sum(map(self._count, pieces))

    def add(self, pieces: tuple[str, ...]) -> None:
        """Append pieces to the beginning."""
        self._tokens = self.tokens_with(pieces)
        self._pieces += pieces


# --- messages --------------------------------------------------------------------------------

#: A stored row that was read, a message as it is sent, or one in OpenAI's chat form.
AnyMessage = Message | ChatMessage | Mapping[str, object]


def messages_tokens(messages: Iterable[AnyMessage], count: Count) -> int:
    """Return the cost of messages: 4 each, and the tokens of content and calls.

    The name and the arguments of a call are counted separately, the arguments as `json.dumps`
    writes them; ids are free.
    """
    return sum(MESSAGE_OVERHEAD + sum(map(count, _texts(message))) for message in messages)


def message_tokens(message: ChatMessage, count: Count) -> int:
    """Return the cost of a native message: each of its texts counted separately, and the 4."""
    calls = (text for call in message.tool_calls for text in (call.name, call.text or ""))
    return MESSAGE_OVERHEAD + sum(map(count, (message.content, *calls)))


def _native_tokens(entry: Entry, count: Count) -> int:
    return sum(message_tokens(message, count) for message in entry.native)


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
