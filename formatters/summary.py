"""A sentence that stands for turns that were left out."""

from typing import Final

from formatters.guard import quoted
from formatters.model import Block, Entry

#: Opens a summary, so that nobody is taken to have said it.
HEADER: Final = "[CONTEXT SUMMARY]"


def summary_entry(sentence: str, tags: frozenset[str] = frozenset()) -> Entry:
    """Return the summary as the first entry of `[SHARED_MEMORY]`; it is no row of it.

    Whoever summarised may quote what people said, so it is guarded like their words; ``tags`` are
    those of this build besides the built-in ones.
    """
    return Entry(text=f"{HEADER}\n{quoted(sentence, tags)}")


def stored_block(entry: Entry) -> Block:
    """Return stored summaries as a message before native history; the next build has the same."""
    return Block(tag="SUMMARY", entries=(entry,))


def summary_block(sentence: str, tags: frozenset[str] = frozenset()) -> Block:
    """Return the summary as a message before native history."""
    return Block(tag="SUMMARY", entries=(summary_entry(sentence, tags),), volatile=True)
