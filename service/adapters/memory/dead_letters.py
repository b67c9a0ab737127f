"""The dead letter of a hub in this process, as those see it who settle it by hand."""

from collections.abc import AsyncGenerator, Sequence

from service.adapters.dead_letters import read_dead_letter
from service.adapters.memory.hub import MemoryHub
from service.adapters.memory.streams import Fields, entry_of, token_of
from service.bus import DeadLetter
from service.wire import Topics


class MemoryDeadLetters:
    """The `DeadLetters` of a hub."""

    def __init__(self, hub: MemoryHub, prefix: str, sources: Sequence[str]) -> None:
        self._hub = hub
        self._prefix = prefix
        self._sources = tuple(sources)
        self._name = prefix + Topics.CONTEXT_BUILD_DEAD

    async def each(self, *, newest_first: bool = False) -> AsyncGenerator[DeadLetter, None]:
        """Yield the entries that there are now."""
        entries = dict(self._hub.streams[self._name].entries)
        for entry in reversed(entries) if newest_first else entries:
            yield read_dead_letter(token_of(entry), entries[entry])

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return an entry, or None."""
        fields = self._fields(letter_id)
        return None if fields is None else read_dead_letter(letter_id, fields)

    async def retry(self, ids: Sequence[str]) -> int:
        """Put payloads back on their streams."""
        return sum(map(self._retry, ids))

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete entries; returns how many were there."""
        stream = self._hub.streams[self._name]
        return sum(stream.delete(entry_of(letter_id)) for letter_id in ids)

    def _fields(self, letter_id: str) -> Fields | None:
        return self._hub.streams[self._name].entries.get(entry_of(letter_id))

    def _retry(self, letter_id: str) -> bool:
        fields = self._fields(letter_id) or {}
        source = fields.get("source", b"").decode(errors="replace")
        if source not in self._sources or "data" not in fields:
            return False
        self._hub.add(self._prefix + source, {"data": fields["data"]})
        return self._hub.streams[self._name].delete(entry_of(letter_id))
