"""What a summary of earlier messages looks like in a conversation."""

from datetime import datetime
from typing import Final

#: Says that nobody said it, so that neither user nor model is taken at its word.
EXPLANATION: Final = """\
Nobody said this: it stands for earlier messages that no longer fit here.
Where a later message says otherwise, the later one is right."""


def create_summary_message(
    text: str, *, generated: datetime, prefix: str | None = None
) -> dict[str, str]:
    """Return a summary as a user's message; a prefix takes the place of header and explanation."""
    header = f"[CONTEXT SUMMARY - Generated: {generated:%Y-%m-%d %H:%M}]\n{EXPLANATION}\n---"
    return {"role": "user", "content": f"{header if prefix is None else prefix}\n{text}"}
