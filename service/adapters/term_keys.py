"""Terms as an index keeps them: numbers of 64 bits, those of an owner side by side.

No word stands in an index, and no query can be anything but numbers. Of two terms with one number
a search finds the rows of both, which costs a place among those that are found and no more.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

#: What each row has; no word holds a NUL.
_ROW: Final = "\0"
_CONVERSATION: Final = "\0conversation "


class TermKeys:
    """The keys of one owner's terms."""

    def __init__(self, owner: str) -> None:
        self._first = int.from_bytes(_hashed(owner), signed=True) << 32

    def __call__(self, terms: Iterable[str]) -> list[int]:
        """Return the keys of terms, ascending and each once."""
        return sorted({self._first | int.from_bytes(_hashed(term)) for term in terms})

    def of_row(self, terms: Iterable[str], conversation: str | None) -> list[int]:
        """Return the keys of a row of a conversation."""
        own = () if conversation is None else (f"{_CONVERSATION}{conversation}",)
        return self((*terms, *own))

    @property
    def row(self) -> int:
        """Return what all rows are counted under."""
        return self((_ROW,))[0]

    def conversation(self, name: str) -> int:
        """Return what each row of a conversation has."""
        return self((f"{_CONVERSATION}{name}",))[0]


def _hashed(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=4).digest()
