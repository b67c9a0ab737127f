"""Finds and deletes what a hub in this process holds of an owner."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from service.adapters.belongings import owner_in, owners_of
from service.adapters.memory.hub import Expiring, MemoryHub
from service.adapters.memory.streams import EntryId
from service.bus import Forgotten
from service.wire import Topics

Value = TypeVar("Value")


def forget(
    hub: MemoryHub, prefix: str, topics: Sequence[str], owner_key: str, *, dry_run: bool
) -> Forgotten:
    """Delete answers, manifests and dead letters; count what has to stay, as all with a dry run."""

    def answers(key: Hashable, packed: bytes) -> bool:
        ours = isinstance(key, tuple) and key[0] == prefix
        return ours and owner_in(packed, "response") == owner_key

    def manifests(_key: Hashable, packed: bytes) -> bool:
        return owner_in(packed, "request") == owner_key

    letters = _named(hub, prefix + Topics.CONTEXT_BUILD_DEAD)
    mine = [entry for entry, owners in letters if owner_key in owners]
    if not dry_run:
        for entry in mine:
            hub.streams[prefix + Topics.CONTEXT_BUILD_DEAD].delete(entry)
    return Forgotten(
        results=_drop(hub.results, answers, dry_run=dry_run),
        manifests=_drop(hub.manifests.kept, manifests, dry_run=dry_run),
        dead_letters=len(mine),
        unreadable=sum(not owners for _, owners in letters),
        waiting=sum(
            owner_key in owners for topic in topics for _, owners in _named(hub, prefix + topic)
        ),
    )


def _drop(
    values: Expiring[Value], chosen: Callable[[Hashable, Value], bool], *, dry_run: bool
) -> int:
    mine = [key for key, value in values.items() if chosen(key, value)]
    if not dry_run:
        for key in mine:
            values.drop(key)
    return len(mine)


def _named(hub: MemoryHub, stream: str) -> list[tuple[EntryId, frozenset[str]]]:
    entries = hub.streams[stream].entries
    return [(entry, owners_of(fields.get("data", b""))) for entry, fields in entries.items()]
