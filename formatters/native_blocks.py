"""Blocks of native messages: `HISTORY`, the history of the chat layout, and `RUN`, the run so far.

An entry is an atomic unit: a message, or a call with its results.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from formatters.model import Block, Entry, Facts, GivesWay, Message, Omission, Role
from formatters.native import native, shortened
from formatters.repair.sequence import Repaired, call_ids, repaired
from formatters.repair.units import units_of
from formatters.turns import in_order

#: Candidates that go beyond the limit of messages are dropped for this reason.
_BEYOND: Final = "memory_limit"


def native_history(facts: Facts) -> Block:
    """Show the history as messages of their own, oldest first.

    Its calls keep their ids, so that the text stays the same from build to build; only those that
    parts for a provider repeat in the run are changed.
    """
    opaque = call_ids(message for message in facts.run if message.provider_parts is not None)
    mended = repaired(in_order(facts.history), taken=opaque)
    units = units_of(mended.messages)
    kept = _newest(units, facts.memory.limit)
    beyond = units[: len(units) - len(kept)]
    return Block(
        tag="HISTORY",
        entries=tuple(_entry(unit, mended, facts.tags) for unit in kept),
        gives_way=GivesWay.BY_STRATEGY,
        native=True,
        moves=bool(beyond) or facts.more_history,
        starts=facts.starts,
        tags=facts.tags,
        omissions=(*_filtered(mended), *(_omitted(unit, mended) for unit in beyond)),
    )


def run_so_far(facts: Facts, history: Block | None = None) -> tuple[Block, ...]:
    """Show what the run has brought since the current input; no block where that is nothing.

    No call has the id of one in ``history``, the native block of the same context.
    """
    if not facts.run:
        return ()
    mended = repaired(facts.run, in_flight=True, taken=_called(history) if history else ())
    return (
        Block(
            tag="RUN",
            entries=tuple(_entry(unit, mended, facts.tags) for unit in units_of(mended.messages)),
            gives_way=GivesWay.ALL_BUT_NEWEST,
            native=True,
            volatile=True,
            omissions=tuple(_filtered(mended)),
        ),
    )


Unit = tuple[Message, ...]


def _called(block: Block) -> frozenset[str]:
    messages = (message for entry in block.entries for message in entry.native)
    return frozenset(call.id for message in messages for call in message.tool_calls if call.id)


def _newest(units: Sequence[Unit], limit: int | None) -> Sequence[Unit]:
    """Return the newest units with at most ``limit`` messages; one that goes in whole or not."""
    room = limit
    for taken, unit in enumerate(reversed(units)):
        room = None if room is None else room - len(unit)
        if room is not None and room < 0:
            return units[len(units) - taken :]
    return units


def _entry(unit: Unit, mended: Repaired, tags: frozenset[str]) -> Entry:
    candidates = tuple(message for message in unit if message.id not in mended.synthetic)
    return Entry(
        text="",
        messages=candidates,
        rows=len(unit),
        native=tuple(native(message, tags) for message in unit),
        results={
            message.id: place
            for place, message in enumerate(unit)
            if message.role is Role.TOOL and message.id not in mended.synthetic
        },
        repairs={m.id: mended.reasons[m.id] for m in candidates if m.id in mended.reasons},
        volatile=len(candidates) < len(unit),
        shorten=partial(_shortened, unit, mended, tags),
        longest=max(len(message.content) for message in unit),
    )


def _shortened(unit: Unit, mended: Repaired, tags: frozenset[str], chars: int) -> Entry:
    return _entry(tuple(shortened(message, chars) for message in unit), mended, tags)


def _filtered(mended: Repaired) -> Iterable[Omission]:
    return (
        Omission(message_ids=(note.message_id,), reason=note.reason)
        for note in mended.notes
        if note.outcome == "filtered"
    )


def _omitted(unit: Unit, mended: Repaired) -> Omission:
    ids = tuple(message.id for message in unit if message.id not in mended.synthetic)
    return Omission(message_ids=ids, reason=_BEYOND)
