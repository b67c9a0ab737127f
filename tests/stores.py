"""What tests of stores share: a counter, a clock, and an empty store of each kind."""

from datetime import UTC, datetime

#: When rows are received, until a test sets the clock.
RECEIPT = datetime(2025, 6, 1, 12, tzinfo=UTC)
#: The kinds of stores; each keeps the whole contract.
KINDS = ("memory", "sqlite", "postgres")


class Words:
    """Counts words."""

    name = "words"
    exact = False

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(text.split())


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = RECEIPT

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now
