"""A summariser without a model or a thought, for what is tested around summaries."""

from collections.abc import Sequence

from formatters.model import Message

#: Characters that a token has at least, in most scripts.
CHARS_A_TOKEN = 2


class Openings:
    """Puts together how messages begin; the same for the same messages."""

    name = "openings"

    async def summarize(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the part of each message that leaves room for all of them."""
        room = max_tokens * CHARS_A_TOKEN // 2
        said = [" ".join(message.content.split()) for message in messages]
        each = max(room // max(len(said), 1), 2)
        return " ".join(text[:each] for text in said if text)[:room] or "(nothing was said)"
