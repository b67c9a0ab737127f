"""Stored rows, read once: the builds of a history have most of their rows in common."""

import json
import sys
from collections.abc import Sequence
from typing import Final

from formatters.model import Message, Row
from formatters.recent import Recent
from formatters.rows import StoredRows, read_row, read_rows

#: The memory that a cache may take.
MAX_BYTES: Final = 32_000_000
#: The bytes of a row besides its JSON, with the turn, the texts and the counts that are kept with
#: it; and how often its characters are in all that. Measured for a full cache.
ROW_BYTES: Final = 4_000
COPIES: Final = 4


class RowCache:
    """Reads rows as messages, and keeps those of stores, by their JSON; threads may share it.

    What is made of a message is kept with it, and dropped with it: see `formatters.model.Made`.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._messages: Recent[str, Message] = Recent(max_bytes, Message.forget_made)

    def read(self, rows: Sequence[Row]) -> tuple[Message, ...]:
        """Read rows in order, as `formatters.rows.read_rows` does."""
        if not isinstance(rows, StoredRows):
            return read_rows(rows)
        newer = self._messages.newer
        try:  # most builds find all rows
            return tuple([newer[body] for body in rows.bodies])
        except KeyError:
            return tuple([newer.get(body) or self._read(body) for body in rows.bodies])

    def count_new(self, rows: Sequence[Row]) -> int:
        """Return how many rows are not among those that were read last."""
        if not isinstance(rows, StoredRows):
            return len(rows)
        newer = self._messages.newer
        return sum([body not in newer for body in rows.bodies])

    def _read(self, body: str) -> Message:
        size = ROW_BYTES + COPIES * sys.getsizeof(body)
        message = self._messages.get(body, size)
        if message is None:
            message = read_row(json.loads(body)).keep_made()
            self._messages.add(body, message, size)
        return message
