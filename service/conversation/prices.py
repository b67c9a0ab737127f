"""What messages cost as they are sent, counted once for each."""

from typing import Final

from formatters.model import Count, Row
from service.conversation.sending import message_tokens, sent

#: Messages whose costs are remembered at most; about 1 MB of memory.
MOST: Final = 10_000


class Prices:
    """Remembers what each message costs; messages are never changed, only replaced."""

    def __init__(self, count: Count) -> None:
        self.count = count
        # each with its message, which would else be gone, and its id another one's
        self._known: dict[int, tuple[Row, int]] = {}

    def __call__(self, row: Row) -> int:
        """Return the tokens of a message."""
        known = self._known.get(id(row))
        if known is not None:
            return known[1]
        if len(self._known) >= MOST:
            self._known.clear()
        tokens = message_tokens(sent(row), self.count)
        self._known[id(row)] = (row, tokens)
        return tokens
