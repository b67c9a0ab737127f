"""Locks by owner: whoever changes a history waits for those who came before."""

import asyncio
from weakref import WeakValueDictionary


class OwnerLocks:
    """Puts changes of one history one after another, in the order of their calls.

    A batch that is read in a thread would otherwise be overtaken by a smaller one.
    """

    def __init__(self) -> None:
        # a lock lives for as long as somebody holds it or waits for it
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, owner: str) -> asyncio.Lock:
        """Return the lock of an owner; those who wait for it get it in turn."""
        return self._locks.setdefault(owner, asyncio.Lock())
