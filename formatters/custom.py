"""Custom blocks of a request, such as `[MOOD]`."""

import re
from typing import Final

from formatters.model import Block, Entry, Facts, TrimPolicy

TAG_PATTERN: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


def custom(facts: Facts) -> tuple[Block, ...]:
    """Show each custom block under its tag, in the order of the request."""
    return tuple(
        Block(
            tag=tag,
            header=f"[{tag}]\n",
            entries=(Entry(text=facts.guard.quote(text)),),
            gives_way=TrimPolicy.WHOLE,
        )
        for tag, text in facts.blocks.items()
    )
