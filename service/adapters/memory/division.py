"""The one stream of requests that a hub in this process has."""

from service.adapters.memory.hub import MemoryHub
from service.adapters.memory.inbox import MemoryInbox
from service.bus import RequestStream
from service.errors import ConfigError
from service.wire import Topics


class MemoryDivision:
    """The `Division` of a hub: there is nobody to share the work with."""

    def __init__(self, requests: MemoryInbox, hub: MemoryHub, prefix: str) -> None:
        self._requests = requests
        self._hub = hub
        self._name = prefix + Topics.CONTEXT_BUILD_REQUEST

    async def count(self) -> int:
        """Return that there is one."""
        return 1

    async def divide(self, count: int) -> None:
        """Raise `ConfigError`, unless nothing changes."""
        if count != 1:
            raise ConfigError("a bus in memory has one stream of requests")

    async def streams(self) -> list[RequestStream]:
        """Return the one stream."""
        depth = await self._requests.depth()
        entries = len(self._hub.streams[self._name].entries)
        name = Topics.CONTEXT_BUILD_REQUEST
        return [RequestStream(name=name, entries=entries, pending=depth.pending)]
