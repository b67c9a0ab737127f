"""What tests of stores share: a counter, a clock, the kinds, and a look into the databases."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

#: When rows are received, until a test sets the clock.
RECEIPT = datetime(2025, 6, 1, 12, tzinfo=UTC)
#: The kinds of stores; each keeps the whole contract.
KINDS = ("memory", "sqlite", "postgres")


@dataclass(frozen=True)
class Sql:
    """A database with nothing in it, and a way to ask it past the store: a statement at a time."""

    url: str
    ask: Callable[[str], list[tuple[Any, ...]]]


class Words:
    """Counts words."""

    name = "words"
    exact = False

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(text.split())


class Clock:
    """Blocks until it is set."""

    def __init__(self) -> None:
        self.now = RECEIPT

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now
