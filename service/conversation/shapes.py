"""The shapes that callers have their messages in, and which of them a message is in."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol

from formatters.model import Message, Role, Row
from service.conversation.part_shapes import BLOCKS, PARTS
from service.conversation.row_shape import ROWS


class Shape(Protocol):
    """Read a caller's message, and write it anew where something in it had to change."""

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return what is said in it, under ids that begin with ``name``: results, then the rest."""
        ...

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return it with these of the messages read from it, as they are now."""
        ...

    def joined(self, rows: Sequence[Row]) -> Row | None:
        """Return several messages with results as one; None where each has to be by itself."""
        ...

    def made(self, caller: Row, result: Message) -> Row:
        """Return a result that was made up for a call in ``caller``, as a message of its own."""
        ...


#: Types of blocks that only neuron-context's messages have.
_BLOCK_TYPES: Final = frozenset({"tool_use", "tool_result"})


def shape_of(row: Row) -> Shape:
    """Return the shape of a message: of parts, of blocks, or a row or chat message."""
    if "parts" in row:
        return PARTS
    content = row.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        types = (part.get("type") for part in content if isinstance(part, Mapping))
        if not _BLOCK_TYPES.isdisjoint(map(str, types)):
            return BLOCKS
    return ROWS


def in_blocks(row: Row) -> Row:
    """Return a message with all that it says in typed blocks, where it has calls or results.

    That is how counters read them; a message that only says something stays as it is.
    """
    shape = shape_of(row)
    messages = shape.read(row, "")
    if shape is BLOCKS or (shape is ROWS and not messages[0].tool_calls):
        return row
    return {"role": row.get("role"), "content": [*chain.from_iterable(map(_blocks, messages))]}


def _blocks(message: Message) -> Iterator[Row]:
    if message.role is Role.TOOL:
        yield {"type": "tool_result", "content": message.content}
        return
    yield {"type": "text", "text": message.content}
    for call in message.tool_calls:
        yield {"type": "tool_use", "name": call.name, "input": call.arguments or {}}
