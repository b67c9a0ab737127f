"""What is always kept of a conversation, and the user's messages that have to open what is kept."""

from collections.abc import Collection, Sequence

from formatters.model import Role
from service.budget.groups import Group, cost
from service.conversation.shapes import PARTS
from service.conversation.units import Units


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


def pin_shortest_opener(groups: Sequence[Group], answer: Group, room: int) -> list[Group]:
    """Pin the shortest of the user's messages before an answer, and omit what none can precede.

    These are answers that follow only such messages of the user as are too long for the room.
    """
    protected, said = protected_indexes(groups), [each for each in groups if not _is_answer(each)]
    remaining = room - cost([group for group in groups if group.index in protected])
    openers = [each for each in said if each.index in protected or each.tokens <= remaining]
    before = [each for each in openers if each.index < answer.index]
    shortest = min(before, key=lambda each: (each.tokens, -each.index), default=None)
    first = openers[0].index if openers else groups[-1].index
    return [
        each._replace(pinned=True) if each is shortest else each
        for each in groups
        if not (_is_answer(each) and said and said[0].index < each.index < first)
    ]


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
    spent, protected = cost(kept), protected_indexes(groups)
    positions = {group.index: position for position, group in enumerate(groups)}
    opened: list[Group] = []
    for group in kept:
        start = positions[opened[-1].index] + 1 if opened else 0
        skipped = groups[start : positions[group.index]]
        openers = [each for each in reversed(skipped) if not _is_answer(each)]
        if openers and _needs_opener(units, opened, group):
            opener = next((each for each in openers if spent + each.tokens <= room), None)
            if opener:
                opened.append(opener)
                spent += opener.tokens
            elif group.index not in protected:
                spent -= group.tokens
                continue
            else:
                while _needs_opener(units, opened, group):
                    spent -= opened.pop().tokens
        opened.append(group)
    return tuple(opened)


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
