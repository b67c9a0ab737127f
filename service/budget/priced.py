"""Entries as groups with their price, and groups as the entries that are sent."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from formatters.model import COUNT_MARK, Block, Count, Entry
from formatters.native import cleared
from service.budget.counting import MESSAGE_OVERHEAD, entry_tokens, message_tokens
from service.budget.groups import Group


def priced(block: Block, count: Count) -> list[Group]:
    """Return a group for each entry."""
    if block.native:
        return [
            _native_group(index, entry, count)._replace(start=_start(block, entry))
            for index, entry in enumerate(block.entries)
        ]
    return [
        Group(
            index,
            count(f"{entry.text}\n"),
            count(entry.text),
            entry.messages,
            entry.rows,
            start=_start(block, entry),
        )
        for index, entry in enumerate(block.entries)
    ]


def fixed_tokens(block: Block, count: Count) -> int:
    """Return what a block costs beside its entries, its number priced as the largest it can be."""
    if block.native:
        return 0
    rows = sum(entry.rows for entry in block.entries)
    return MESSAGE_OVERHEAD + count(block.header.replace(COUNT_MARK, f"count={rows}"))


def clamped(group: Group, room: int) -> Group:
    """Weigh a group that is larger than ``room`` as if it filled it.

    What clearing it saves goes on from there: the excess is taken from the first results.
    """
    excess = left = group.tokens_last - room
    if excess <= 0:
        return group
    savings: dict[str, int] = {}
    for id_, saved in group.savings.items():
        absorbed = min(left, saved)
        savings[id_] = saved - absorbed
        left -= absorbed
    return group._replace(tokens=room, tokens_last=room, savings=savings, excess=excess)


def with_cleared(entry: Entry, ids: frozenset[str]) -> Entry:
    """Return the entry with the tool results of these rows cleared."""
    if not ids:
        return entry
    places = {entry.results[id_] for id_ in ids}
    native = tuple(
        cleared(message) if place in places else message
        for place, message in enumerate(entry.native)
    )
    results = {id_: place for id_, place in entry.results.items() if place not in places}
    shorten = partial(_shorter, entry.shorten, ids) if entry.shorten else None
    return replace(entry, native=native, results=results, shorten=shorten)


def _shorter(shorten: Callable[[int], Entry], ids: frozenset[str], chars: int) -> Entry:
    return with_cleared(shorten(chars), ids)


def _start(block: Block, entry: Entry) -> int | None:
    return block.starts.get(entry.messages[0].id) if entry.messages else None


def _native_group(index: int, entry: Entry, count: Count) -> Group:
    tokens = entry_tokens(entry, count)
    return Group(
        index=index,
        tokens=tokens,
        tokens_last=tokens,
        messages=entry.messages,
        size=entry.rows,
        savings=_savings(entry, count),
    )


def _savings(entry: Entry, count: Count) -> Mapping[str, int]:
    results = {id_: entry.native[place] for id_, place in entry.results.items()}
    saved = {
        id_: message_tokens(message, count) - message_tokens(cleared(message), count)
        for id_, message in results.items()
    }
    return {id_: tokens for id_, tokens in saved.items() if tokens > 0}
