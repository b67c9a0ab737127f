"""Which messages of a conversation a summary stands for, and which stay as they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from formatters.model import Message, Row
from service.budget.groups import Group, newest_that_fit
from service.conversation.sending import message_tokens, sent, written_by
from service.conversation.units import Price, Unit, read_units


class CountsText(Protocol):
    """All that is asked of a counter."""

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """A conversation in two parts, each in its order."""

    to_summarize: list[Row]
    to_preserve: list[Row]
    #: What the first part says, mended: calls with their results.
    said: tuple[Message, ...]


def select_messages_for_compaction(
    messages: Sequence[Row],
    token_counter: CountsText,
    available_budget: int,
    recent_preserve_ratio: float,
) -> tuple[list[Row], list[Row]]:
    """Return the messages to summarise, and those to preserve.

    The newest stay, as many as have the given share of the budget, and at least one; a call goes
    with its results. The newest message of the user stays, and so do system messages and earlier
    summaries, which are never summarised again.
    """

    def price(row: Row) -> int:
        return message_tokens(sent(row), token_counter.count)

    selected = select(messages, price, int(available_budget * recent_preserve_ratio))
    return selected.to_summarize, selected.to_preserve


def select(messages: Sequence[Row], price: Price, budget: int) -> Selection:
    """Split a conversation so that its newest part has so many tokens at most."""
    units = read_units(messages)
    groups = units.groups(price)
    chosen = [group for group in groups if not _is_own(units.units[group.index])]
    newest = newest_that_fit(chosen, budget) or chosen[-1:]
    kept = {group.index for group in newest}
    gone = [group for group in chosen if group.index not in kept and not group.pinned]
    places = _places(units.units[group.index] for group in gone)
    # what repair leaves out goes with its neighbours
    there = _places(units.units)
    first = min(_places(units.units[group.index] for group in newest), default=0)
    places |= {place for place in range(first) if place not in there} if gone else set()
    return Selection(
        to_summarize=[row for place, row in enumerate(messages) if place in places],
        to_preserve=[row for place, row in enumerate(messages) if place not in places],
        said=_said(gone),
    )


def _said(groups: Iterable[Group]) -> tuple[Message, ...]:
    return tuple(chain.from_iterable(group.messages for group in groups))


def _is_own(unit: Unit) -> bool:
    return any(written_by(item.row) is not None for item in unit.items)


def _places(units: Iterable[Unit]) -> set[int]:
    return {place for unit in units for item in unit.items for place in item.places}
