"""Blocks as the messages that are sent."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from formatters.model import Block
from formatters.native import as_dict

#: Stands between blocks that share a message.
BLOCK_SEPARATOR: Final = "\n\n"


def render(blocks: Iterable[Block]) -> list[dict[str, object]]:
    """Return the messages of blocks, in their order."""
    return [message for shared in group_by_message(blocks) for message in _messages(shared)]


def group_by_message(blocks: Iterable[Block]) -> list[list[Block]]:
    """Put blocks together that share a message."""
    shared: list[list[Block]] = []
    for block in blocks:
        if block.joins and shared:
            shared[-1].append(block)
        else:
            shared.append([block])
    return shared


def join_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Let blocks share the message of the first."""
    return tuple(
        replace(block, joins=place > 0, role="system") for place, block in enumerate(blocks)
    )


def _messages(shared: list[Block]) -> Iterator[dict[str, object]]:
    first = shared[0]
    if first.native:
        yield from (as_dict(message) for entry in first.entries for message in entry.native)
        return
    yield {"role": first.role, "content": BLOCK_SEPARATOR.join(block.text for block in shared)}
