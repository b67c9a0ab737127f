"""Blocks as the messages that are sent."""

from collections.abc import Iterable

from formatters.model import Block


def render(blocks: Iterable[Block]) -> list[dict[str, str]]:
    """Return a message a block, in their order."""
    return [{"role": block.role, "content": block.text} for block in blocks]
