"""A caller's messages as groups for strategies, and what a strategy keeps as messages again."""

import heapq
import marshal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, takewhile
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from formatters.model import Message, Role, Row
from formatters.native import CLEARED
from formatters.recent import Recent
from formatters.repair.sequence import read_valid, repair, split_units
from service.budget.groups import Group
from service.conversation.checks import check_readable
from service.conversation.messages import is_summary
from service.conversation.shapes import (
    ROWS,
    PartShape,
    Shape,
    is_system,
    is_written_id,
    role_of,
    shape_of,
)

#: Return the tokens of one of the caller's messages.
RowCost = Callable[[Row], int]

#: The memory for what was read of callers' messages, and what one takes besides its content.
KNOWN_BYTES: Final = 32_000_000
ITEM_BYTES: Final = 1_000


def read_units(rows: Sequence[Row]) -> "Units":
    """Read messages of all shapes as units, and repair what no model's API accepts.

    Results follow their calls then, and a call without a result gets a placeholder, except for the
    calls at the very end, whose results may still be on their way: nothing follows them, not even
    an instruction. A message that holds results and more belongs to the unit of their call.
    """
    read = (_read_item(row, index) for index, row in enumerate(rows))
    items = [item for item in read if not item.is_empty_instruction]
    units = Units().followed_by(_valid_units(items) or _repaired_units(items))
    return _note_opening(units, items)


class _Known(NamedTuple):
    """What was read of a caller's message, and its content then."""

    item: "Item"
    position: int
    content: bytes


#: Callers' own messages by their ids; each is kept, so that no other one gets its id.
_KNOWN: Final[Recent[int, _Known]] = Recent(KNOWN_BYTES)


def _read_item(row: Row, index: int) -> "Item":
    """Read a caller's message; one that was read before, and is unchanged, isn't read again."""
    try:  # no other way to see whether it is unchanged is as fast
        content = marshal.dumps(row, 2)  # type: ignore[arg-type] # it reports values that it can't write
    except ValueError:  # values that JSON doesn't have either, or nested too deeply
        content = b""
    size = ITEM_BYTES + len(content)
    known = _KNOWN.get(id(row), size) if content else None
    if known and known.position == index and known.content == content:
        return known.item
    check_readable(row, f"messages[{index}]")
    item = Item.read(row, index)
    # a changed message is for one caller, who may change it again
    if content and item.is_unchanged:
        item.messages[0].keep_made()
        _KNOWN.add(id(row), _Known(item, index, content), size)
    return item


class UnitReader:
    """Reads a conversation that grows, each of its messages once; they are never changed.

    Returns what `read_units` does, of the messages that can be sent.
    """

    def __init__(self, row_cost: "RowCost") -> None:
        self._row_cost = row_cost
        self._items: list[Item] = []
        #: The first messages, in units whose calls all have results; how many messages they are;
        #: and the ids of calls and results in them. Later messages only add to these units, unless
        #: they have one of these ids, or need a repair themselves.
        self._units = Units()
        self._settled = 0
        self._ids: set[str | None] = set()

    def read(self, rows: Sequence[Row]) -> "Units":
        """Return a conversation in units."""
        known = [item.given for item in self._items]
        if len(rows) < len(known) or not all(map(is_, known, rows)):
            pairs = zip(known, rows, strict=False)
            same = len([*takewhile(lambda pair: pair[0] is pair[1], pairs)])
            del self._items[same:]
            if same < self._settled:
                self._forget()
        for index in range(len(self._items), len(rows)):
            self._items.append(Item.read(rows[index], index))
        return self._read_new()

    def _read_new(self) -> "Units":
        items = [item for item in self._items[self._settled :] if item.can_be_sent]
        units = _valid_units(items, self._ids)
        if units is None:
            self._forget()
            items = [item for item in self._items if item.can_be_sent]
            units = _repaired_units(items)
        read = self._units.followed_by(units, self._row_cost)
        spoken = [unit for unit in units if unit[0].is_dialogue]
        if not (spoken and awaits_results(spoken[-1])):
            self._units, self._settled = read, len(self._items)
            for message in chain(_messages(items), *map(_messages, units)):
                self._ids |= {message.tool_call_id, *(call.id for call in message.tool_calls)}
        return _note_opening(read, self._items)

    def _forget(self) -> None:
        self._units, self._settled, self._ids = Units(), 0, set()


@dataclass(frozen=True, slots=True)
class Units:
    """A conversation in units, in its order.

    Instructions are always kept, and no strategy sees them.
    """

    units: tuple["Unit", ...] = ()
    #: The indexes of instructions, and of summaries.
    instructions: tuple[int, ...] = ()
    summaries: tuple[int, ...] = ()
    #: Whether its shapes are those of Anthropic or Gemini, whose first message is a user's.
    needs_opening: bool = False
    #: Whether the user began, but with a message that isn't sent.
    lacks_opening: bool = False
    _rows: tuple[Row, ...] = ()
    #: The groups of all units, if they were counted before; and what counted them.
    _groups: tuple[Group, ...] = ()
    _row_cost: RowCost | None = None

    def followed_by(self, units: Sequence["Unit"], row_cost: RowCost | None = None) -> "Units":
        """Return the conversation with more units at its end, all counted by ``row_cost``."""
        if not units:
            return self
        added = [*enumerate(units, start=len(self.units))]
        counted = _make_groups(added, row_cost) if row_cost else []
        return Units(
            units=(*self.units, *units),
            instructions=(*self.instructions, *(i for i, u in added if u[0].is_instruction)),
            summaries=(*self.summaries, *(i for i, u in added if u[0].is_summary)),
            needs_opening=self.needs_opening
            or any(item.shape is not ROWS for unit in units for item in unit),
            lacks_opening=self.lacks_opening,
            _rows=(*self._rows, *(item.row for unit in units for item in unit)),
            _groups=(*self._groups, *counted),
            _row_cost=row_cost,
        )

    def groups(self, row_cost: RowCost) -> list[Group]:
        """Return the units that strategies choose from; the user's newest is pinned."""
        counted = self._row_cost is row_cost
        return pin_newest(
            self._groups if counted else _make_groups(enumerate(self.units), row_cost)
        )

    def items(self, kept: Iterable[Group]) -> list["Item"]:
        """Return the items of the groups that are kept, and of all instructions."""
        cleared = {group.index: group.cleared for group in kept}
        return [
            item.clear_results(cleared.get(index, ()))
            for index in sorted({*cleared, *self.instructions})
            for item in self.units[index]
        ]

    def rows(self, kept: Iterable[Group]) -> list[Row]:
        """Return the same as the caller's messages."""
        return [item.row for item in self.items(kept)]

    def rows_with(self, message: Row, index: int, kept: Sequence[Group]) -> list[Row]:
        """Return the same, with one more message where the group of this index is or was."""
        rows = self.rows(kept)
        before = {i for i in (*self.instructions, *(g.index for g in kept)) if i < index}
        rows.insert(sum(len(self.units[i]) for i in before), message)
        return rows

    def all_items(self) -> list["Item"]:
        """Return the items of the whole conversation."""
        return [*chain.from_iterable(self.units)]

    def all_rows(self) -> list[Row]:
        """Return the whole conversation as the caller's messages."""
        return list(self._rows)

    def instructions_first(self) -> "Units":
        """Return the same conversation with its instructions at the start."""
        return Units().followed_by(sorted(self.units, key=lambda unit: not unit[0].is_instruction))


def _make_groups(units: Iterable[tuple[int, "Unit"]], row_cost: RowCost) -> list[Group]:
    """Return the groups of units with their indexes, but for instructions."""
    groups: list[Group] = []
    for index, unit in units:
        first, *others = unit
        if not first.is_instruction:
            tokens = sum([row_cost(item.row) for item in unit])
            messages = tuple(_messages(unit)) if others else first.messages
            # what has results is no single message
            savings = _Savings(unit, row_cost) if len(messages) > 1 else _NO_SAVINGS
            groups.append(Group(index, tokens, tokens, messages, len(unit), savings))
    return groups


def pin_newest(groups: Iterable[Group]) -> list[Group]:
    """Return the groups with the user's newest pinned."""
    pinned = list(groups)
    for position in reversed(range(len(pinned))):
        if any(message.role is Role.HUMAN for message in pinned[position].messages):
            pinned[position] = pinned[position]._replace(pinned=True)
            break
    return pinned


def dropped_groups(groups: Sequence[Group], kept: Iterable[Group]) -> list[Group]:
    """Return the groups that are not kept."""
    indexes = {group.index for group in kept}
    return [group for group in groups if group.index not in indexes]


class Item(NamedTuple):
    """One of the caller's messages, as far as it is kept.

    A named tuple, since every message is one: it is created in a third of the time.
    """

    #: The caller's own object, unless something in it changed.
    row: Row
    #: The messages that were read from it.
    messages: tuple[Message, ...]
    #: The beginning of the ids of its messages.
    name: str
    #: Its index among the caller's messages: none for a placeholder, several for joined messages.
    indexes: frozenset[int]
    shape: Shape
    #: The caller's message, before any change.
    given: Row

    #: Whether user, model or tools say it, so that it can be repaired.
    is_dialogue: bool
    #: Whether it instructs the model, and is no part of the dialogue.
    is_instruction: bool
    is_summary: bool
    #: Whether repair changed what it says.
    is_mended: bool = False

    @classmethod
    def read(cls, row: Row, index: int | None = None, name: str = "") -> Self:
        """Read a message of any shape, at an index or under a name."""
        shape = shape_of(row)
        name = name or str(index)
        messages = shape.read(row, name)
        is_dialogue = all(message.role is not Role.OTHER for message in messages)
        is_instruction = not is_dialogue and is_system(row)
        indexes = frozenset() if index is None else frozenset((index,))
        flags = is_dialogue, is_instruction, is_summary(row)
        return cls(shape.as_required(row)[0], messages, name, indexes, shape, row, *flags)

    @property
    def is_empty_instruction(self) -> bool:
        """Return whether it instructs, but says nothing; repair finds what else is empty."""
        return self.is_instruction and not any(
            message.content.strip() or message.provider_parts is not None
            for message in self.messages
        )

    @property
    def can_be_sent(self) -> bool:
        """Return whether it has a role that models know, and is no empty instruction."""
        if self.is_dialogue or self.is_instruction:
            return not self.is_empty_instruction
        return any(message.role is not Role.OTHER for message in self.messages)

    @property
    def is_unchanged(self) -> bool:
        """Return whether it is the caller's own object."""
        return self.row is self.given and len(self.indexes) == 1

    def with_messages(self, messages: tuple[Message, ...]) -> "Item":
        """Return it with these of its messages, in their current state; results in its order."""
        places = {message.id: place for place, message in enumerate(self.messages)}
        runs = groupby(messages, key=attrgetter("role"))
        messages = tuple(m for _, run in runs for m in sorted(run, key=lambda m: places[m.id]))
        if messages == self.messages:
            return self
        by_id = attrgetter("id")
        if sorted(messages, key=by_id) == sorted(self.messages, key=by_id):
            return self._replace(messages=messages)  # in any order in one message
        row, _ = self.shape.as_required(self.shape.write(self.given, self.name, messages))
        return self._replace(row=row, messages=messages, is_mended=True)

    def clear_results(self, ids: Iterable[str]) -> "Item":
        """Return it without the content of these results; parts for a provider stay."""
        wanted = set(ids)
        cleared = wanted and {m.id for m in self.messages if can_be_cleared(m)} & wanted
        if not cleared:
            return self
        return self.with_messages(
            tuple(
                replace(message, content=CLEARED) if message.id in cleared else message
                for message in self.messages
            )
        )

    def savings(self, row_cost: RowCost) -> dict[str, int]:
        """Return the tokens that clearing each of its results saves, by the id of its message.

        Each is counted alone, since a message may hold hundreds.
        """
        clearable = {m.id for m in self.messages if can_be_cleared(m)}
        ids = [m.id for m in self.shape.read(self.given, self.name) if m.id in clearable]
        before = self.shape.split_results(self.row)
        after = self.shape.split_results(self.clear_results(ids).row)
        return {
            id_: row_cost(row) - row_cost(cleared)
            for id_, row, cleared in zip(ids, before, after, strict=True)
        }


#: Messages that stay together: a call with its results, or a single message.
Unit = tuple[Item, ...]


def awaits_results(unit: Unit) -> bool:
    """Return whether a unit has fewer results than calls, as only the last one may."""
    messages = [*_messages(unit)]
    results = sum(message.role is Role.TOOL for message in messages)
    return results < sum(len(message.tool_calls) for message in messages)


def _messages(items: Iterable[Item]) -> Iterator[Message]:
    return chain.from_iterable(item.messages for item in items)


def can_be_cleared(message: Message) -> bool:
    """Return whether it is a result whose content can be dropped by itself."""
    return message.role is Role.TOOL and message.provider_parts is None


class _Savings(Mapping[str, int]):
    """The tokens that clearing each result saves, counted on demand: few strategies need them."""

    def __init__(self, items: Iterable[Item], row_cost: RowCost) -> None:
        self._row_cost = row_cost
        self._items = {m.id: item for item in items for m in item.messages if can_be_cleared(m)}
        self._known: dict[str, int] = {}

    def __getitem__(self, id_: str) -> int:
        if id_ not in self._known:
            self._known |= self._items[id_].savings(self._row_cost)
        return self._known[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


_NO_SAVINGS: Final[Mapping[str, int]] = MappingProxyType({})


def _note_opening(units: Units, items: Iterable[Item]) -> Units:
    """Return units, and whether the user began, but with a message that isn't sent.

    Anthropic's and Gemini's APIs refuse lists that an answer begins. Plain texts may be for these.
    """
    opening = next((item for item in items if item.is_dialogue), None)
    sent = (item for unit in units.units for item in unit if item.is_dialogue)
    first = next(sent, None)
    if opening is None or first is None or role_of(opening.given) is not Role.HUMAN:
        return units
    if not opening.indexes.isdisjoint(first.indexes):
        return units
    are_texts = all(len(unit) == 1 for unit in units.units)
    return replace(units, lacks_opening=units.needs_opening or are_texts)


def _valid_units(
    items: Sequence[Item], taken: Collection[str | None] = ()
) -> tuple[Unit, ...] | None:
    """Return units of messages that need no repair; None if any needs one.

    ``taken`` are the ids of calls and results before them.
    """
    if read_valid(_messages(i for i in items if i.is_dialogue), taken, open_end=True) is None:
        return None
    units: list[Unit] = []
    newest = 0
    for item in items:
        if item.is_dialogue and item.messages[0].role is Role.TOOL:
            units[newest] = (*units[newest], item)
            continue
        if item.is_dialogue:
            newest = len(units)
        units.append((item,))
    if units[newest + 1 :] and awaits_results(units[newest]):
        return None
    return tuple(units)


def _repaired_units(items: Sequence[Item]) -> tuple[Unit, ...]:
    others = [(item,) for item in items if not item.is_dialogue]
    last = max((_position(item) for (item,) in others), default=-1)
    dialogue = _split(repair_items([item for item in items if item.is_dialogue], last))
    return tuple(heapq.merge(dialogue, others, key=lambda unit: _position(unit[0])))


def _position(item: Item) -> int:
    return min(item.indexes)


def repair_items(dialogue: Sequence[Item], last: int = -1) -> Iterator[Item]:
    """Repair the messages of a dialogue, and put them together as they came.

    ``last`` is the index of the last message besides them: calls before it wait for no result.
    """
    origins = {message.id: item for item in dialogue for message in item.messages}
    early = {id_ for id_, item in origins.items() if _position(item) < last}
    repaired = tuple(_add_placeholders(_repair(dialogue, early), origins))
    for _, messages in groupby(repaired, key=lambda message: origins[message.id].name):
        kept = tuple(messages)
        yield origins[kept[0].id].with_messages(kept)


def _repair(dialogue: Iterable[Item], early: Collection[str]) -> Iterator[Message]:
    """Yield the messages repaired; calls at the very end but not in ``early`` wait for results."""
    repaired = repair([message for item in dialogue for message in item.messages])
    pending = {
        result.id
        for caller, *results in split_units(repaired.messages)[-1:]
        for result in results
        if caller.id not in early and result.id in repaired.synthetic
    }
    for message in repaired.messages:
        if message.id in pending:
            continue
        # repair gave it an id to match a call that needs none
        unwritten = message.role is Role.TOOL and not is_written_id(message.tool_call_id)
        yield replace(message, tool_call_id=None) if unwritten else message


def _add_placeholders(repaired: Iterable[Message], origins: dict[str, Item]) -> Iterator[Message]:
    """Yield the messages; placeholder results become messages of the caller's shape."""
    for caller, *results in split_units(tuple(repaired)):
        yield caller
        item = origins[caller.id]
        for result in results:
            if result.id in origins:
                yield result
                continue
            made = Item.read(item.shape.make_result(item.row, result), name=result.id)
            origins.update((message.id, made) for message in made.messages)
            yield from made.messages


def _split(items: Iterable[Item]) -> Iterator[Unit]:
    """Yield units: a message that begins with a result belongs to the unit before it."""
    unit: list[Item] = []
    for item in items:
        if unit and item.messages[0].role is not Role.TOOL:
            yield _join_results(unit)
            unit = []
        unit.append(item)
    if unit:
        yield _join_results(unit)


def _join_results(unit: Sequence[Item]) -> Unit:
    """Join results that changed or moved into one message, if their shape has them in one."""
    caller, *results = unit
    if len(results) < 2:
        return tuple(unit)
    places = [index for item in unit for index in sorted(item.indexes)]
    moved = places != [*range(places[0], places[0] + len(places))]
    if not moved and not any(result.is_mended or not result.indexes for result in results):
        return tuple(unit)
    shape, *others = {result.shape for result in results}
    if others or not isinstance(shape, PartShape):
        return tuple(unit)
    row = shape.join([result.row for result in results])
    indexes = frozenset(chain.from_iterable(result.indexes for result in results))
    return caller, Item.read(row, name=f"{caller.name}/answers")._replace(indexes=indexes)
