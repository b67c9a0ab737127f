"""A caller's messages as groups for strategies, and what a strategy keeps as messages again."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, takewhile
from typing import Self

from formatters.model import Message, Role, Row
from formatters.native import CLEARED
from formatters.repair.sequence import repair, split_units
from service.budget.groups import Group
from service.conversation.messages import is_same_message, is_system
from service.conversation.part_shapes import is_written_id
from service.conversation.shapes import Shape, shape_of

#: Return the tokens of one of the caller's messages.
RowCost = Callable[[Row], int]


def read_units(rows: Sequence[Row]) -> "Units":
    """Read messages of any of the sources' shapes, and repair what no model's API accepts.

    Results follow their calls then, and a call without a result gets a placeholder, except for the
    calls at the very end, whose results may still be on their way. A message that holds results
    and more belongs to the unit of their call.
    """
    given = [Given.read(row, str(index), frozenset((index,))) for index, row in enumerate(rows)]
    dialogue = _split(repair_items([message for message in given if message.is_dialogue]))
    others = (
        Unit((message.whole,), is_instruction=is_system(message.row))
        for message in given
        if not message.is_dialogue
    )
    return Units(tuple(heapq.merge(dialogue, others, key=_position)))


@dataclass(frozen=True, slots=True)
class Units:
    """A conversation in units, in its order."""

    units: tuple["Unit", ...]

    def groups(self, row_cost: RowCost) -> list[Group]:
        """Return the units that strategies choose from; the user's newest is pinned."""
        newest = max((n for n, unit in enumerate(self.units) if unit.is_human), default=None)
        return [
            unit.as_group(index, row_cost, pinned=index == newest)
            for index, unit in enumerate(self.units)
            if not unit.is_instruction
        ]

    def items(self, kept: Iterable[Group]) -> list["Item"]:
        """Return the items of the groups that are kept, and of all instructions."""
        cleared = {group.index: group.cleared for group in kept}
        return [
            item.clear_results(cleared.get(index, ()))
            for index, unit in enumerate(self.units)
            if unit.is_instruction or index in cleared
            for item in unit.items
        ]

    def rows(self, kept: Iterable[Group]) -> list[Row]:
        """Return the same as the caller's messages."""
        return [item.row for item in self.items(kept)]

    def rows_with(self, message: Row, index: int, kept: Sequence[Group]) -> list[Row]:
        """Return the same, with one more message where the group of this index is or was."""
        rows = self.rows(kept)
        rows.insert(len(Units(self.units[:index]).items(kept)), message)
        return rows

    def all_rows(self) -> list[Row]:
        """Return the whole conversation as the caller's messages."""
        return [item.row for unit in self.units for item in unit.items]

    def instructions_first(self) -> "Units":
        """Return the same conversation with its instructions at the start."""
        return Units(tuple(sorted(self.units, key=lambda unit: not unit.is_instruction)))


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages that stay together: a call with its results, or a single message."""

    items: tuple["Item", ...]
    #: Instructions are always kept, and no strategy sees them.
    is_instruction: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the messages of all items."""
        return tuple(chain.from_iterable(item.messages for item in self.items))

    @property
    def is_human(self) -> bool:
        """Return whether the user says something in it."""
        return any(message.role is Role.HUMAN for message in self.messages)

    def as_group(self, index: int, row_cost: RowCost, *, pinned: bool) -> Group:
        """Return the unit as strategies see it."""
        tokens = sum(row_cost(item.row) for item in self.items)
        return Group(
            index=index,
            tokens=tokens,
            tokens_last=tokens,
            messages=self.messages,
            size=len(self.items),
            savings=_Savings(self.items, row_cost),
            pinned=pinned,
        )


@dataclass(frozen=True, slots=True)
class Given:
    """A message as the caller has it, with what is read from it."""

    row: Row
    #: The beginning of the ids of what is read from it.
    name: str
    #: Its index among the caller's messages: none for a placeholder, several for joined messages.
    indexes: frozenset[int]
    shape: Shape
    messages: tuple[Message, ...]

    @classmethod
    def read(cls, row: Row, name: str, indexes: frozenset[int] = frozenset()) -> Self:
        """Read a message of any shape."""
        shape = shape_of(row)
        return cls(row, name, indexes, shape, shape.read(row, name))

    @property
    def is_dialogue(self) -> bool:
        """Return whether user, model or tools say it, so that it can be repaired."""
        return all(message.role is not Role.OTHER for message in self.messages)

    @property
    def whole(self) -> "Item":
        """Return all of it."""
        return Item(self.row, self.messages, self)

    def with_messages(self, messages: tuple[Message, ...]) -> "Item":
        """Return these of its messages; the caller's own object if none changed."""
        same = len(messages) == len(self.messages)
        if same and all(map(is_same_message, messages, self.messages)):
            return self.whole
        return Item(self.shape.write(self.row, self.name, messages), messages, self)


@dataclass(frozen=True, slots=True)
class Item:
    """One of the caller's messages, as far as it is kept."""

    #: The caller's own object, unless something in it changed.
    row: Row
    messages: tuple[Message, ...]
    origin: Given

    @property
    def indexes(self) -> frozenset[int]:
        """Return its indexes among the caller's messages; none for a placeholder."""
        return self.origin.indexes

    @property
    def is_unchanged(self) -> bool:
        """Return whether it is the caller's own object."""
        return self.row is self.origin.row and len(self.indexes) == 1

    def clear_results(self, ids: Iterable[str]) -> "Item":
        """Return it without the content of these results; parts for a provider stay."""
        cleared = {m.id for m in self.messages if can_be_cleared(m)} & set(ids)
        if not cleared:
            return self
        return self.origin.with_messages(
            tuple(
                replace(message, content=CLEARED) if message.id in cleared else message
                for message in self.messages
            )
        )


def can_be_cleared(message: Message) -> bool:
    """Return whether it is a result whose content can be dropped by itself."""
    return message.role is Role.TOOL and message.provider_parts is None


class _Savings(Mapping[str, int]):
    """The tokens that clearing each result saves, counted on demand: few strategies need them."""

    def __init__(self, items: Iterable[Item], row_cost: RowCost) -> None:
        self._row_cost = row_cost
        self._items = {
            message.id: item
            for item in items
            for message in item.messages
            if can_be_cleared(message)
        }

    def __getitem__(self, id_: str) -> int:
        item = self._items[id_]
        return self._row_cost(item.row) - self._row_cost(item.clear_results((id_,)).row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def repair_items(dialogue: Sequence[Given]) -> Iterator[Item]:
    """Repair the messages of a dialogue, and put them together as they came."""
    origins = {message.id: given for given in dialogue for message in given.messages}
    repaired = tuple(_add_placeholders(_repair(dialogue), origins))
    for _, messages in groupby(repaired, key=lambda message: origins[message.id].name):
        kept = tuple(messages)
        yield origins[kept[0].id].with_messages(kept)


def _repair(dialogue: Iterable[Given]) -> Iterator[Message]:
    """Yield the messages repaired, but without placeholders for calls at the very end."""
    repaired = repair([message for given in dialogue for message in given.messages])
    last = takewhile(lambda message: message.role is Role.TOOL, reversed(repaired.messages))
    pending = {message.id for message in last} & repaired.synthetic
    for message in repaired.messages:
        if message.id in pending:
            continue
        # repair gave it an id to match a call that needs none
        unwritten = message.role is Role.TOOL and not is_written_id(message.tool_call_id)
        yield replace(message, tool_call_id=None) if unwritten else message


def _add_placeholders(repaired: Iterable[Message], origins: dict[str, Given]) -> Iterator[Message]:
    """Yield the messages; placeholder results become messages of the caller's shape."""
    for caller, *results in split_units(tuple(repaired)):
        yield caller
        given = origins[caller.id]
        for result in results:
            if result.id in origins:
                yield result
                continue
            made = Given.read(given.shape.make_result(given.row, result), result.id)
            origins.update((message.id, made) for message in made.messages)
            yield from made.messages


def _split(items: Iterable[Item]) -> Iterator[Unit]:
    """Yield units: a message that begins with a result belongs to the unit before it."""
    unit: list[Item] = []
    for item in items:
        if unit and item.messages[0].role is not Role.TOOL:
            yield Unit(_join_results(unit))
            unit = []
        unit.append(item)
    if unit:
        yield Unit(_join_results(unit))


def _join_results(unit: Sequence[Item]) -> tuple[Item, ...]:
    """Join results that had to change into one message, if their shape has them in one."""
    caller, *results = unit
    shapes = {result.origin.shape for result in results}
    if len(results) < 2 or len(shapes) > 1 or all(result.is_unchanged for result in results):
        return tuple(unit)
    row = shapes.pop().join([result.row for result in results])
    if row is None:
        return tuple(unit)
    indexes = frozenset(chain.from_iterable(result.indexes for result in results))
    joined = Given.read(row, f"{caller.origin.name}/answers", indexes)
    return caller, joined.whole


def _position(unit: Unit) -> int:
    return min(unit.items[0].indexes)
