"""What a printed row says: the guarded words of its messages, and their calls."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from formatters.annotations import annotation
from formatters.cut import cut
from formatters.guard import quoted
from formatters.model import MemoryView, Message

#: Messages that are remembered as the guard leaves them, since each request of an owner shows most
#: of the last one's again; and the most characters that such a message has.
REMEMBERED: Final = 4_096
REMEMBERED_CHARS: Final = 2_000


def said_in(row: Sequence[Message], view: MemoryView, tags: frozenset[str]) -> str:
    """Return what the messages of a row say and call, each cut to the limit of characters."""
    texts: list[str] = []
    for message in row:
        if message.content.strip():
            texts.append(_quoted(cut(message.content, view.message_chars), tags))
        if message.tool_calls:
            texts.append(annotation(message.tool_calls))
    return "\n".join(texts)


def _quoted(text: str, tags: frozenset[str]) -> str:
    return _remembered(text, tags) if len(text) <= REMEMBERED_CHARS else quoted(text, tags)


@lru_cache(maxsize=REMEMBERED)
def _remembered(text: str, tags: frozenset[str]) -> str:
    return quoted(text, tags)
