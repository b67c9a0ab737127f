"""Messages that arrived on a channel and wait to be taken."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from time import monotonic
from typing import Final

import structlog

from service.errors import BusError

#: The messages and bytes that may wait; what exceeds them is dropped and counted.
MAX_WAITING: Final = 100_000
MAX_WAITING_BYTES: Final = 256 * 1_048_576
#: The largest batch.
MAX_BATCH: Final = 256
#: Seconds between two log lines about dropped messages.
LOG_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class Arrivals:
    """A bounded queue that never blocks its writer: a slow reader loses messages instead.

    It is iterated over one by one, or by `batches`.
    If the reader of a channel were slowed down, the server would close its connection.
    """

    def __init__(self, channel: str) -> None:
        #: How many messages were dropped.
        self.dropped = 0
        self._channel = channel
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._logged_at = -LOG_SECONDS

    def put(self, payload: bytes) -> None:
        """Add a message, or drop it if too many wait."""
        if len(self._waiting) >= MAX_WAITING or self._bytes + len(payload) > MAX_WAITING_BYTES:
            self.dropped += 1
            now = monotonic()
            if now - self._logged_at >= LOG_SECONDS:
                self._logged_at = now
                log.warning("bus.messages_dropped", channel=self._channel, dropped=self.dropped)
            return
        self._waiting.append(payload)
        self._bytes += len(payload)
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """Make `take` raise once the waiting messages are taken: no more will arrive."""
        self._failure = error
        self._changed.set()

    async def take(self, maximum: int) -> list[bytes]:
        """Wait for messages and return the oldest of them, at least one; raises `BusError`."""
        while not self._waiting:
            if self._failure is not None:
                raise BusError("the reader of the channel failed") from self._failure
            self._changed.clear()
            await self._changed.wait()
        taken = [self._waiting.popleft() for _ in range(min(maximum, len(self._waiting)))]
        self._bytes -= sum(map(len, taken))
        return taken

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """Yield messages in batches, as large as they have become meanwhile."""
        while True:
            yield await self.take(MAX_BATCH)

    def __aiter__(self) -> "Arrivals":
        return self

    async def __anext__(self) -> bytes:
        (payload,) = await self.take(1)
        return payload
