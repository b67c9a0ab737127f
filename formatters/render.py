"""Render blocks as the messages that are sent."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from formatters.model import Block, ChatMessage

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
    """Put blocks into one system message."""
    return tuple(
        replace(block, joins=index > 0, role="system") for index, block in enumerate(blocks)
    )


def as_dict(message: ChatMessage) -> dict[str, object]:
    """Return a message in its wire form; fields without a value have no key."""
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.provider_parts is not None:
        fields["provider_parts"] = message.provider_parts
    return fields


def _messages(shared: list[Block]) -> Iterator[dict[str, object]]:
    first = shared[0]
    if first.native:
        yield from (as_dict(message) for entry in first.entries for message in entry.native)
        return
    yield {"role": first.role, "content": BLOCK_SEPARATOR.join(block.text for block in shared)}
