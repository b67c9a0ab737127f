"""The counts of the texts that were counted last."""

import threading
from collections import OrderedDict
from typing import Final

#: A longer text, in characters, is counted each time.
CACHED_TEXT_CHARS: Final = 200_000


class CountCache:
    """Counts by text, bounded by the characters of the texts; can be used by several threads."""

    #: What an entry takes besides its text, in characters.
    OVERHEAD = 128

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._chars = 0
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> int | None:
        """Return the count of a text that is known."""
        with self._lock:
            count = self._counts.get(text)
            if count is not None:
                self._counts.move_to_end(text)
            return count

    def put(self, text: str, count: int) -> None:
        """Keep the count of a text, unless the text is very long."""
        if len(text) > CACHED_TEXT_CHARS:
            return
        with self._lock:
            if text not in self._counts:
                self._chars += len(text) + self.OVERHEAD
            self._counts[text] = count
            while self._chars > self._max_chars:
                oldest, _ = self._counts.popitem(last=False)
                self._chars -= len(oldest) + self.OVERHEAD
