"""Streams that a consumer group reads: each entry is held by one worker at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An entry that this worker has read and not settled."""

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
    """The unsettled entries of an inbox."""

    #: Entries that the group hasn't read; None if the server doesn't know.
    lag: int | None
    #: Entries that were read and aren't settled.
    pending: int
    #: Age of the oldest pending entry; 0 if there is none.
    oldest_pending_seconds: float


class Inbox(Protocol):
    """Streams read by a consumer group: each entry goes to one worker until it is acknowledged.

    A delivery is leased: unless the worker renews it, another worker may claim it when the lease
    has expired. `renew`, `reset_attempts` and `release` ignore deliveries that this worker no
    longer holds. All methods raise `BusError` if the bus does not answer, and can be called again.
    """

    async def receive(self, slots: int, *, wait: float) -> list[Delivery]:
        """Return at most ``slots`` new entries, or none after ``wait`` seconds."""
        ...

    async def claim(self, slots: int) -> list[Delivery]:
        """Take over at most ``slots`` entries with expired leases, and increment their attempt."""
        ...

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the leases of deliveries."""
        ...

    async def reset_attempts(self, deliveries: Sequence[Delivery]) -> None:
        """Extend the leases of deliveries, and count the current attempt as the first."""
        ...

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """End the leases of deliveries now, so that another worker can claim them."""
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that need no answer."""
        ...

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Copy an entry to the dead-letter stream and settle it, in one atomic step."""
        ...

    async def trim(self) -> None:
        """Delete the entries that every group has read and settled."""
        ...

    async def depth(self) -> Depth:
        """Return the number of unread and pending entries."""
        ...

    async def leave(self) -> None:
        """Remove this worker from the group, unless it still holds entries."""
        ...
