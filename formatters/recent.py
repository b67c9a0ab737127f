"""A cache of what was used last, bounded by size; threads may share it."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps values by their keys, up to a size.

    When the newer values have half of the size, they become the older ones, and the older ones are
    dropped. What is used again becomes a newer one. Values are never None.
    """

    def __init__(self, size: int, on_drop: Callable[[V], object] | None = None) -> None:
        #: Those that most callers look for, who may look here without a call.
        self.newer: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self._most = size // 2
        self._size = 0
        self._on_drop = on_drop

    def get(self, key: K, size: int) -> V | None:
        """Return a value with a size, or None."""
        value = self.newer.get(key)
        if value is None:
            value = self._older.pop(key, None)
            if value is not None:
                self.add(key, value, size)
        return value

    def add(self, key: K, value: V, size: int) -> None:
        """Add a value with a size; one that is too large isn't kept."""
        if size > self._most:
            return
        # no lock: of two threads at once, one may drop what the other added
        if self._size + size > self._most:
            dropped, self._older, self.newer, self._size = self._older, self.newer, {}, 0
            if on_drop := self._on_drop:
                for each in list(dropped.values()):
                    on_drop(each)
        self.newer[key] = value
        self._size += size
