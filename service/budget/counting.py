"""Counting blocks from the counts of their pieces.

A text cut right behind a newline, where the next character is neither white space nor "/", has
exactly as many tokens as its parts, in cl100k_base and o200k_base. Entries of additive blocks, and
blocks behind the first of a message, open with a fixed literal that keeps to this, so their counts
add up and each is counted once.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from formatters.model import Block, ChatMessage, Count, Entry
from formatters.render import JOINT, in_messages

#: Tokens that every message costs besides its content, by the source systems' convention.
MESSAGE_OVERHEAD: Final = 4


def measure(blocks: Iterable[Block], count: Count) -> dict[str, int]:
    """Return the tokens of each block by its tag; their sum is what all messages cost.

    Of a message that several blocks share, each has what the text up to its end counts more than
    the text up to its start; the first has the overhead. Raises `ValueError` for a tag twice.
    """
    sizes: dict[str, int] = {}
    for tag, size in (pair for shared in in_messages(blocks) for pair in _sizes(shared, count)):
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
    before = 0
    for block in shared:
        upto = before + _text_tokens(block, "", count)
        yield block.tag, upto - told
        told = upto
        before += _text_tokens(block, JOINT, count) if block is not shared[-1] else 0


def _text_tokens(block: Block, end: str, count: Count) -> int:
    """Return the tokens of a block's text with what follows it in its message."""
    if not block.additive or not block.entries:
        return count(f"{block.text}{end}")
    *others, last = block.entries
    entries = sum(entry_tokens(entry, count) for entry in others)
    return count(block.heading) + entries + count(f"{last.text}{end}")
