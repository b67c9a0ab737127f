"""A caller's own messages as groups of the engine, and what it keeps as the caller's own again."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from formatters.model import Message, Role, Row
from service.budget.groups import Group
from service.conversation.items import Given, Item, can_be_cleared, mended_items
from service.conversation.reading import is_system

#: Count the tokens of one of the caller's messages.
Price = Callable[[Row], int]


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages that go together: a call with its results, or one by itself."""

    items: tuple[Item, ...]
    #: True for instructions, which stand apart from the conversation and always stay.
    standing: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return what is said in it."""
        return tuple(chain.from_iterable(item.messages for item in self.items))


@dataclass(frozen=True, slots=True)
class Units:
    """A conversation in atomic units, in its order."""

    units: tuple[Unit, ...]

    def groups(self, price: Price) -> list[Group]:
        """Return the units that strategies choose from; the newest of a user's is pinned."""
        human = (n for n, unit in enumerate(self.units) if _is_human(unit))
        newest = max(human, default=None)
        return [
            _group(place, unit, price, pinned=place == newest)
            for place, unit in enumerate(self.units)
            if not unit.standing
        ]

    def items(self, kept: Iterable[Group]) -> list[Item]:
        """Return what is left of the conversation: what was kept, and what always stays."""
        cleared = {group.index: group.cleared for group in kept}
        return [
            item.without(cleared.get(place, ()))
            for place, unit in enumerate(self.units)
            if unit.standing or place in cleared
            for item in unit.items
        ]

    def rows(self, kept: Iterable[Group]) -> list[Row]:
        """Return the same as the caller's messages."""
        return [item.row for item in self.items(kept)]

    def all_rows(self) -> list[Row]:
        """Return all of the conversation as the caller's messages."""
        return [item.row for unit in self.units for item in unit.items]

    def head(self, place: int) -> "Units":
        """Return what stands before a group of this index."""
        return Units(self.units[:place])

    def hoisted(self) -> "Units":
        """Return the same conversation with what always stays at its head."""
        return Units(tuple(sorted(self.units, key=lambda unit: not unit.standing)))


def read_units(rows: Sequence[Row]) -> Units:
    """Read messages of any of the sources' shapes, and mend what no model's API takes.

    Results stand behind their calls then, and calls that nobody answered have a result that says
    so; but those of a call at the very end may be on their way, and none is made up. A message
    that holds results and more belongs to the unit of their call.
    """
    given = [Given.read(row, str(place), frozenset((place,))) for place, row in enumerate(rows)]
    spoken = _units(mended_items([each for each in given if not each.is_apart]))
    apart = (Unit((each.whole,), standing=is_system(each.row)) for each in given if each.is_apart)
    return Units(tuple(heapq.merge(spoken, apart, key=_place)))


def _units(items: Iterable[Item]) -> Iterator[Unit]:
    unit: list[Item] = []
    for item in items:
        if unit and item.messages[0].role is not Role.TOOL:
            yield Unit(_joined(unit))
            unit = []
        unit.append(item)
    if unit:
        yield Unit(_joined(unit))


def _joined(unit: Sequence[Item]) -> tuple[Item, ...]:
    """Put results that had to change into one message, where their shape has them in one."""
    caller, *answers = unit
    shapes = {answer.origin.shape for answer in answers}
    if len(answers) < 2 or len(shapes) > 1 or all(answer.is_given for answer in answers):
        return tuple(unit)
    row = shapes.pop().joined([answer.row for answer in answers])
    if row is None:
        return tuple(unit)
    places = frozenset(chain.from_iterable(answer.places for answer in answers))
    given = Given.read(row, f"{caller.origin.name}/answers", places)
    return caller, given.whole


def _place(unit: Unit) -> int:
    return min(unit.items[0].places)


def _group(place: int, unit: Unit, price: Price, *, pinned: bool) -> Group:
    tokens = sum(price(item.row) for item in unit.items)
    return Group(
        index=place,
        tokens=tokens,
        tokens_last=tokens,
        messages=unit.messages,
        size=len(unit.items),
        savings=_Savings(unit.items, price),
        pinned=pinned,
    )


class _Savings(Mapping[str, int]):
    """What clearing each result saves, counted when asked for: most strategies never do."""

    def __init__(self, items: Iterable[Item], price: Price) -> None:
        self._price = price
        self._items = {
            message.id: item
            for item in items
            for message in item.messages
            if can_be_cleared(message)
        }

    def __getitem__(self, id_: str) -> int:
        item = self._items[id_]
        return self._price(item.row) - self._price(item.without((id_,)).row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def _is_human(unit: Unit) -> bool:
    return any(message.role is Role.HUMAN for message in unit.messages)
