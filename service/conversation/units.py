"""A caller's own messages as groups of the engine, and what it keeps as the caller's own again."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, takewhile
from typing import Self

from formatters.model import Message, Role, Row
from formatters.native import CLEARED
from formatters.repair.sequence import repair, split_units
from service.budget.groups import Group
from service.conversation.shapes import Shape, is_same, is_system, is_written, shape_of


@dataclass(frozen=True, slots=True)
class Given:
    """A message as it came."""

    row: Row
    #: Begins the ids of what is read from it.
    name: str
    #: Among the messages: of a result that was made up none, of joined messages several.
    places: frozenset[int]
    shape: Shape
    messages: tuple[Message, ...]

    @classmethod
    def read(cls, row: Row, name: str, places: frozenset[int] = frozenset()) -> Self:
        """Read a message of any shape."""
        shape = shape_of(row)
        return cls(row, name, places, shape, shape.read(row, name))

    @property
    def is_apart(self) -> bool:
        """Tell whether it is none of what user, model and tools say, which repair is about."""
        return any(message.role is Role.OTHER for message in self.messages)

    @property
    def whole(self) -> "Item":
        """Return all of it."""
        return Item(self.row, self.messages, self)

    def with_only(self, messages: tuple[Message, ...]) -> "Item":
        """Return what is left of it: the same object where that is all, as it was."""
        same = len(messages) == len(self.messages)
        if same and all(map(is_same, messages, self.messages)):
            return self.whole
        return Item(self.shape.write(self.row, self.name, messages), messages, self)


@dataclass(frozen=True, slots=True)
class Item:
    """One of the caller's messages, with what is read from it."""

    #: The caller's own object, unless something in it changed.
    row: Row
    messages: tuple[Message, ...]
    #: What it is written from.
    origin: Given

    @property
    def places(self) -> frozenset[int]:
        """Return where it stood among the messages: nowhere if it was made up."""
        return self.origin.places

    @property
    def is_given(self) -> bool:
        """Tell whether it is the caller's own object."""
        return self.row is self.origin.row and len(self.places) == 1

    def without(self, results: Iterable[str]) -> "Item":
        """Return it with these of its results cleared; parts for a provider are left alone."""
        ids = {m.id for m in self.messages if can_be_cleared(m)} & set(results)
        if not ids:
            return self
        messages = tuple(
            replace(message, content=CLEARED) if message.id in ids else message
            for message in self.messages
        )
        return self.origin.with_only(messages)


def mended_items(spoken: Sequence[Given]) -> Iterator[Item]:
    """Mend what is said, and put it together to messages as it came in them."""
    origins = {message.id: each for each in spoken for message in each.messages}
    mended = tuple(_with_made_results(_mended(spoken), origins))
    for _, said in groupby(mended, key=lambda message: origins[message.id].name):
        messages = tuple(said)
        yield origins[messages[0].id].with_only(messages)


def can_be_cleared(message: Message) -> bool:
    """Tell whether it is a result that may go without the rest of its unit."""
    return message.role is Role.TOOL and message.provider_parts is None


def _mended(spoken: Iterable[Given]) -> Iterator[Message]:
    fixed = repair([message for each in spoken for message in each.messages])
    last = takewhile(lambda message: message.role is Role.TOOL, reversed(fixed.messages))
    waiting = {message.id for message in last} & fixed.synthetic
    for message in fixed.messages:
        if message.id not in waiting:
            # the id that a result was given to match a call that needs none
            written = message.role is not Role.TOOL or is_written(message.tool_call_id)
            yield message if written else replace(message, tool_call_id=None)


def _with_made_results(mended: Iterable[Message], origins: dict[str, Given]) -> Iterator[Message]:
    """Give results that were made up a message of the caller's shape, as an origin."""
    for caller, *results in split_units(tuple(mended)):
        yield caller
        given = origins[caller.id]
        for result in results:
            if result.id in origins:
                yield result
                continue
            made = Given.read(given.shape.made(given.row, result), result.id)
            origins.update((message.id, made) for message in made.messages)
            yield from made.messages


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
