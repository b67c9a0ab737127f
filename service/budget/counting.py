"""Counting blocks from the counts of their pieces.

A text cut right behind a newline, where the next character is neither white space nor "/", has
exactly as many tokens as its parts, in cl100k_base and o200k_base. Entries of additive blocks open
with a fixed literal that keeps to this, so their counts add up and each is counted once.
"""

from typing import Final

from formatters.model import Block, Count, Entry

#: Tokens that every message costs besides its content, by the source systems' convention.
MESSAGE_OVERHEAD: Final = 4


def block_tokens(block: Block, count: Count) -> int:
    """Return the tokens of the message that carries this block."""
    if not block.additive or not block.entries:
        return count(block.text) + MESSAGE_OVERHEAD
    *others, last = block.entries
    entries = sum(entry_tokens(entry, count) for entry in others) + count(last.text)
    return count(block.heading) + entries + MESSAGE_OVERHEAD


def entry_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry that another one follows."""
    return count(f"{entry.text}\n")
