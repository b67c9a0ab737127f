"""The counts of the texts that were counted last."""

import sys
import threading
from typing import Final

from formatters.model import Count

#: A longer text, in characters, is counted each time.
CACHED_TEXT_CHARS: Final = 200_000


class CountCache(dict[str, int]):
    """Counts by text; one that is missing is counted. It can be used by several threads.

    Bounded by the bytes of the texts, in two generations: once the recent one has half of
    them, it becomes the older one, and what was in that is forgotten. So a known text is found
    without a lock.
    """

    #: Bytes that an entry takes besides its text: its count, and its share of the table, which
    #: grows threefold.
    OVERHEAD = 96

    def __init__(self, count: Count, max_bytes: int) -> None:
        super().__init__()
        self._count = count
        self._max_bytes = max_bytes
        self._bytes = 0
        self._older: dict[str, int] = {}
        self._lock = threading.Lock()

    def __missing__(self, text: str) -> int:
        known = self._older.get(text)
        tokens = self._count(text) if known is None else known
        if len(text) <= CACHED_TEXT_CHARS:
            self._keep(text, tokens)
        return tokens

    def _keep(self, text: str, tokens: int) -> None:
        with self._lock:
            if text in self:  # another thread has counted it too
                return
            self[text] = tokens
            self._bytes += sys.getsizeof(text) + self.OVERHEAD
            if self._bytes > self._max_bytes // 2:
                self._older = dict(self)
                self.clear()
                self._bytes = 0
