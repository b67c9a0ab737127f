"""A caller's own messages, one by one: what is read from them, and what they become again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Self

from formatters.model import Message, Role, Row
from formatters.native import CLEARED
from formatters.repair.sequence import repaired
from formatters.repair.units import units_of
from service.conversation.part_forms import is_written
from service.conversation.reading import is_same
from service.conversation.shapes import Shape, shape_of


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
    fixed = repaired([message for each in spoken for message in each.messages])
    last = takewhile(lambda message: message.role is Role.TOOL, reversed(fixed.messages))
    waiting = {message.id for message in last} & fixed.synthetic
    for message in fixed.messages:
        if message.id not in waiting:
            # the id that a result was given to match a call that needs none
            written = message.role is not Role.TOOL or is_written(message.tool_call_id)
            yield message if written else replace(message, tool_call_id=None)


def _with_made_results(mended: Iterable[Message], origins: dict[str, Given]) -> Iterator[Message]:
    """Give results that were made up a message of the caller's shape, as an origin."""
    for caller, *results in units_of(tuple(mended)):
        yield caller
        given = origins[caller.id]
        for result in results:
            if result.id in origins:
                yield result
                continue
            made = Given.read(given.shape.made(given.row, result), result.id)
            origins.update((message.id, made) for message in made.messages)
            yield from made.messages
