"""Blocks that a request brings along, such as `[MOOD]`."""

import re
from typing import Final

from formatters.guard import quoted
from formatters.model import Block, Entry, Facts, TrimPolicy

#: What a tag looks like.
TAG_PATTERN: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


def custom(facts: Facts) -> tuple[Block, ...]:
    """Show each block of the request under its tag, in the request's order."""
    return tuple(
        Block(
            tag=tag,
            header=f"[{tag}]\n",
            entries=(Entry(text=quoted(text, facts.tags)),),
            gives_way=TrimPolicy.WHOLE,
        )
        for tag, text in facts.blocks.items()
    )
