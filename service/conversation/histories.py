"""Conversations by their ids: which there are, which are active, and which is the current one."""

from collections.abc import Iterable
from typing import Final

from formatters.model import Row

#: The conversation of callers that name none.
DEFAULT: Final = "default"

#: Clears every conversation (SPADE_LLM's word), and none that has this id alone.
ALL: Final = "all"


class Histories:
    """Messages by conversation; a message is never changed, but may be replaced."""

    def __init__(self) -> None:
        self.current = DEFAULT
        self._rows: dict[str, list[Row]] = {DEFAULT: []}
        self._active: dict[str, None] = {}

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._rows

    @property
    def active(self) -> list[str]:
        """Return the conversations in which something was said, the first one first."""
        return list(self._active)

    def rows(self, conversation_id: str | None = None) -> tuple[Row, ...]:
        """Return what was said in a conversation, or in the current one."""
        return tuple(self._rows.get(self.named(conversation_id), ()))

    def named(self, conversation_id: str | None) -> str:
        """Return an id, or the current one in place of none."""
        return self.current if conversation_id is None else conversation_id

    def add(self, row: Row, conversation_id: str | None = None, *, first: bool = False) -> None:
        """Put a message behind the others, or before them."""
        name = self.named(conversation_id)
        rows = self._rows.setdefault(name, [])
        rows.insert(0 if first else len(rows), row)
        self._active.setdefault(name)

    def replace(self, rows: Iterable[Row], conversation_id: str | None = None) -> None:
        """Put messages in the place of all that a conversation has."""
        self._rows[self.named(conversation_id)] = list(rows)

    def turn_to(self, conversation_id: str) -> bool:
        """Make a conversation the current one, if there is such a one."""
        if conversation_id not in self._rows:
            return False
        self.current = conversation_id
        return True

    def clear(self, conversation_id: str | None = None) -> None:
        """Empty a conversation, which is then neither active nor current; an unknown one is none.

        `ALL` forgets every conversation.
        """
        if conversation_id == ALL:
            self._rows = {DEFAULT: []}
            self._active.clear()
            self.current = DEFAULT
            return
        name = self.named(conversation_id)
        if name not in self._rows:
            return
        self._rows[name] = []
        self._active.pop(name, None)
        if name == self.current:
            self.current = DEFAULT
