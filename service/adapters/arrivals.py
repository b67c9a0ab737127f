"""What came in on a channel and waits to be taken."""

import asyncio
from collections import deque
from time import monotonic

import structlog

from service.errors import BusError

#: Messages and bytes that wait at most; what comes on top is dropped and counted.
MAX_WAITING = 100_000
MAX_WAITING_BYTES = 256 * 1_048_576
#: Messages in a batch at most.
BATCH = 256
#: Seconds between two lines of log about dropped messages.
QUIET_SECONDS = 1.0

log = structlog.get_logger()


class Arrivals:
    """A bounded queue that never makes its writer wait: a slow reader costs messages.

    Nothing may slow the reader of a channel down, or the server would cut the connection.
    """

    def __init__(
        self, channel: str, *, limit: int = MAX_WAITING, max_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        self.dropped = 0
        self._channel = channel
        self._limit = limit
        self._max_bytes = max_bytes
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._failure: BaseException | None = None
        self._warned_at = -QUIET_SECONDS

    def put(self, payload: bytes) -> None:
        """Add a message, or drop it where too much waits already."""
        if len(self._waiting) >= self._limit or self._bytes + len(payload) > self._max_bytes:
            self._drop()
            return
        self._waiting.append(payload)
        self._bytes += len(payload)
        self._some.set()

    def fail(self, error: BaseException) -> None:
        """Let whoever takes what is left know that nothing more will come."""
        self._failure = error
        self._some.set()

    async def take(self, most: int) -> list[bytes]:
        """Wait for messages and return the oldest of them, at least one; raises `BusError`."""
        while not self._waiting:
            if self._failure is not None:
                raise BusError("the reader of the channel failed") from self._failure
            self._some.clear()
            await self._some.wait()
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._bytes -= sum(map(len, taken))
        return taken

    def _drop(self) -> None:
        self.dropped += 1
        now = monotonic()
        if now - self._warned_at >= QUIET_SECONDS:
            self._warned_at = now
            log.warning("bus.messages_dropped", channel=self._channel, dropped=self.dropped)


class Batches:
    """Arrivals, in batches."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def __aiter__(self) -> "Batches":
        return self

    async def __anext__(self) -> list[bytes]:
        return await self._arrivals.take(BATCH)


class Singles:
    """Arrivals, one by one."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def __aiter__(self) -> "Singles":
        return self

    async def __anext__(self) -> bytes:
        (payload,) = await self._arrivals.take(1)
        return payload
