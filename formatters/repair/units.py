"""Atomic units: what of a conversation can only be kept or dropped together."""

from collections.abc import Sequence

from formatters.model import Message, Role


def units_of(messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Group messages that `formatters.repair.sequence` has seen: [U], [A, T, T], [A].

    An AI message stands with the results behind it, every other message alone.
    """
    units: list[list[Message]] = []
    for message in messages:
        if message.role is Role.TOOL:
            units[-1].append(message)
        else:
            units.append([message])
    return tuple(map(tuple, units))
