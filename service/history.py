"""History as a build has it: the rows that were read, and where they stand in all of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from formatters.model import Message
from formatters.turns import in_order
from service.budget.groups import keeps_still
from service.budget.heuristic import HeuristicTokenCounter

#: What rows are measured by that no store has counted.
_ESTIMATE: Final = HeuristicTokenCounter()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The rows that were read, oldest first, and how many were not."""

    messages: tuple[Message, ...] = ()
    #: Rows of the run that is being built; the context does not show them as history.
    current: tuple[Message, ...] = ()
    not_read: int = 0
    #: How many of the rows that were read a search has found: the oldest, and others are missing
    #: among them. None where there was no search.
    found: int | None = None
    #: Tokens of all that stand before a row, by its id, where the strategy goes by them.
    starts: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """Return how many messages were read."""
        return len(self.messages) + len(self.current)

    def placed(self, strategy: object, known: Mapping[str, int]) -> "History":
        """Return it with the tokens before each row, if the strategy goes by them.

        ``known`` are those that a store tells; without any they are estimated, from the first row
        that there is.
        """
        if not keeps_still(strategy):
            return self
        return replace(self, starts=known or _estimated(in_order(self.messages)))


def _estimated(messages: Sequence[Message]) -> dict[str, int]:
    starts: dict[str, int] = {}
    tokens = 0
    for message in messages:
        starts[message.id] = tokens
        tokens += _ESTIMATE.count(message.content)
    return starts
