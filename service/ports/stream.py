"""What the service needs of a stream: entries in the hands of one worker at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An entry of a stream in the hands of this worker."""

    #: The stream that it came from.
    source: str
    #: The entry's id in that stream.
    token: str
    payload: bytes
    #: When the entry was written, by the bus's clock.
    received_at: datetime
    #: 1 for the first delivery.
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much of the streams of an inbox is not settled."""

    #: Entries that nobody in the group has read; None where the server can't tell.
    lag: int | None
    #: Entries in somebody's hands.
    pending: int
    #: How long ago the oldest of those was written.
    oldest_pending_seconds: float


class Inbox(Protocol):
    """Streams read by a consumer group: every entry goes to one worker until it is acked.

    A delivery is leased: unless it is renewed, another worker may claim it once the lease has run
    out. All methods raise `BusError` where the bus does not answer; all can be called again.
    """

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        ...

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries whose lease has run out; raises their attempt."""
        ...

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the lease of those that this worker still holds; leave the others alone."""
        ...

    async def reset_attempts(self, deliveries: Sequence[Delivery]) -> None:
        """Renew those that this worker still holds, and count this attempt as their first."""
        ...

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Let the lease of those that this worker still holds run out now."""
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that need no answer."""
        ...

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy the entry to the dead letter and settle it, in one step."""
        ...

    async def trim(self) -> None:
        """Delete entries that every group has read and settled, and no others."""
        ...

    async def depth(self) -> Depth:
        """Tell how much waits for the group, and how much is in work."""
        ...

    async def leave(self) -> None:
        """Take this worker out of the group, unless it still holds entries."""
        ...
