"""What is always kept of a conversation, and the user's messages that have to open what is kept."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from formatters.model import Role
from service.budget.groups import Group, cost
from service.conversation.shapes import PARTS
from service.conversation.units import Units

_INDEX: Final = attrgetter("index")


def pin_opener(groups: Sequence[Group]) -> Sequence[Group]:
    """Pin the user's message before a pinned unit that begins with a call, with a text at its end.

    In messages of blocks and parts, the user's newest text may follow results.
    """
    pinned = next((at for at, group in enumerate(groups) if group.pinned), 0)
    if groups and _is_answer(groups[pinned]):
        for at in reversed(range(pinned)):
            if not _is_answer(groups[at]):
                return [*groups[:at], groups[at]._replace(pinned=True), *groups[at + 1 :]]
    return groups


def protected_indexes(groups: Sequence[Group]) -> set[int]:
    """Return the indexes of the groups that are always kept."""
    return {group.index for group in groups if group.pinned or group is groups[-1]}


def drop_excess(kept: Sequence[Group], protected: Collection[int], room: int) -> tuple[Group, ...]:
    """Drop the oldest groups that aren't protected, until the rest fits."""
    excess = cost(kept) - room
    within: list[Group] = []
    for group in kept:
        if excess > 0 and group.index not in protected:
            excess -= group.tokens
        else:
            within.append(group)
    return tuple(within)


def open_answers(
    units: Units, groups: Sequence[Group], kept: Sequence[Group], room: int
) -> tuple[Group, ...]:
    """Return the groups so that none begins where no API accepts it.

    Where a message of the user that was dropped has to be in front of one, the nearest that fits is
    kept too; without one, the answer is dropped.
    """
    spent, protected, openers = cost(kept), protected_indexes(groups), _Openers(units, groups, room)
    opened: list[Group] = []
    for group in kept:
        if _needs_opener(units, opened, group) and openers.are_between(opened, group):
            opener = openers.nearest(opened, group, room - spent)
            if opener:
                opened.append(opener)
                spent += opener.tokens
            elif group.index not in protected:
                spent -= group.tokens
                continue
            else:
                while opened and _needs_opener(units, opened, group):
                    spent -= opened.pop().tokens
        opened.append(group)
    return tuple(opened)


def explain_unopened(
    units: Units, groups: Sequence[Group], dropped: Iterable[Group], kept: Sequence[Group]
) -> dict[int, str]:
    """Return why `open_answers` dropped groups, by their indexes, if these are kept in the end.

    A group whose message of the user is kept was only too long.
    """
    openers, reasons = _Openers(units, groups, 0), dict[int, str]()
    for group in dropped:
        at = bisect_left(kept, group.index, key=_INDEX)
        before = kept[at - 1 : at] if at else ()
        lacks = _needs_opener(units, before, group) and openers.are_between(before, group)
        reasons[group.index] = "no_opening" if lacks else "no_room"
    return reasons


def refill(
    units: Units,
    groups: Sequence[Group],
    kept: Sequence[Group],
    scores: Mapping[int, float],
    room: int,
) -> tuple[Group, ...]:
    """Return the groups, and of the others with a score the best that fit into the rest of a room.

    An answer comes with a message of the user if it needs one in front of it.
    """
    filled, remaining = sorted(kept, key=_INDEX), room - cost(kept)
    openers, known = _Openers(units, groups, remaining), {group.index for group in kept}
    others = [each for each in groups if each.index in scores and each.index not in known]
    others.sort(key=lambda each: (scores[each.index], each.index), reverse=True)
    is_growing = True
    while is_growing:  # what is added may open an answer with a higher score
        is_growing = False
        for group in others:
            if group.index in known or group.tokens > remaining:
                continue
            at = bisect_left(filled, group.index, key=_INDEX)
            if added := _opened(units, openers, filled, at, group, remaining):
                filled[at:at] = added
                known.update(map(_INDEX, added))
                remaining, is_growing = room - cost(filled), True
    return tuple(filled)


def _opened(
    units: Units, openers: "_Openers", filled: Sequence[Group], at: int, group: Group, room: int
) -> list[Group]:
    """Return a group for a position among others, after a message of the user if it needs one.

    Empty if that message doesn't fit, or if the group behind the position would then need one.
    """
    before, after, added = filled[:at], filled[at : at + 1], [group]
    if _needs_opener(units, before, group) and openers.are_between(before, group):
        opener = openers.nearest(before, group, room - group.tokens)
        added = [opener, group] if opener else []
    for following in after if added else ():
        if _needs_opener(units, added, following) and openers.are_between(added, following):
            return []
    return added


class _Openers:
    """The messages of the user, which answers may follow."""

    def __init__(self, units: Units, groups: Sequence[Group], room: int) -> None:
        said = [group for group in groups if not _is_answer(group)]
        #: Whether answers before the first of them follow no message that is sent.
        self._lacks_first = units.lacks_opening and bool(said)
        self._indexes = [group.index for group in said]
        self._fitting = [group for group in said if group.tokens <= room]

    def are_between(self, before: Sequence[Group], answer: Group) -> bool:
        """Return whether there is one between the last of some groups and an answer."""
        if self._lacks_first and not before:
            return True
        first = bisect_right(self._indexes, before[-1].index) if before else 0
        return first < bisect_left(self._indexes, answer.index)

    def nearest(self, before: Sequence[Group], answer: Group, room: int) -> Group | None:
        """Return the last of those between them that fits; None if none does."""
        last = bisect_left(self._fitting, answer.index, key=_INDEX)
        first = bisect_right(self._fitting, before[-1].index, key=_INDEX) if before else 0
        groups = (self._fitting[at] for at in reversed(range(first, last)))
        return next((group for group in groups if group.tokens <= room), None)


def _needs_opener(units: Units, before: Sequence[Group], group: Group) -> bool:
    """Return whether a user's message has to precede a group.

    Anthropic's and Gemini's first message is a user's, and Gemini's calls follow one, or a result.
    """
    if not before:
        return _is_answer(group)
    is_parts = units.units[group.index][0].shape is PARTS
    return is_parts and group.calls_tools and before[-1].messages[-1].role is Role.AI


def _is_answer(group: Group) -> bool:
    return group.messages[0].role is not Role.HUMAN
