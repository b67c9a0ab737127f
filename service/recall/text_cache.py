"""What texts were analysed to, as long as there is room for it."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TextCache(Generic[T]):
    """Calls a function of a text and a language once for each, while it is remembered.

    Bounded by the characters of the texts, in two generations: once the recent one has half of
    them, it becomes the older one, and what was in that is forgotten. Threads may share it without
    a lock: at worst two of them do the same work, or a generation ends early.
    """

    def __init__(self, analyse: Callable[[str, str], T], most_chars: int) -> None:
        self._analyse = analyse
        self._most_chars = most_chars
        self._recent: dict[tuple[str, str], T] = {}
        self._older: dict[tuple[str, str], T] = {}
        self._chars = 0

    def __call__(self, text: str, language: str) -> T:
        """Return what the function returns for them."""
        key = (text, language)
        found = self._recent.get(key)
        if found is None:
            found = self._older.get(key)
            found = self._analyse(text, language) if found is None else found
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, str], found: T) -> None:
        if self._chars > self._most_chars // 2:
            self._older, self._recent, self._chars = self._recent, {}, 0
        self._recent[key] = found
        self._chars += len(key[0])
