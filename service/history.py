"""History as a build has it: the rows that were read, and where they stand in all of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from formatters.model import Message, Role
from formatters.turns import in_order
from service.budget.groups import keeps_still
from service.budget.heuristic import HeuristicTokenCounter
from service.budget.message_tokens import messages_tokens
from service.plan import STORED_CHARS, Plan
from service.ports import HistoryPage

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

    def placed(self, plan: Plan, page: HistoryPage) -> "History":
        """Return it with the tokens before each row, if the strategy goes by them.

        They are those that a store tells of the rows of ``page``, as the layout shows these;
        without any they are estimated, from the first row that there is.
        """
        if not keeps_still(plan.strategy):
            return self
        told = page.native_starts if plan.layout == "chat" else page.starts
        ids = (str(row["id"]) for row in page.rows)
        known = dict(zip(ids, told, strict=False))
        return replace(self, starts=known or _estimated(in_order(self.messages), plan.layout))


def _estimated(messages: Sequence[Message], layout: str) -> dict[str, int]:
    starts: dict[str, int] = {}
    tokens = 0
    for message in messages:
        starts[message.id] = tokens
        tokens += _SIZES[layout](message)
    return starts


def _native(message: Message) -> int:
    return messages_tokens([message], _ESTIMATE.count)


def _printed(message: Message) -> int:
    return 0 if message.role is Role.TOOL else _ESTIMATE.count(message.content[:STORED_CHARS])


#: What a row takes by layout.
_SIZES: Final[Mapping[str, Callable[[Message], int]]] = {"chat": _native, "tagged": _printed}
