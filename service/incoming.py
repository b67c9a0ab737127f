"""A delivery as it is read: whose request it is, and what it asks for or what is wrong with it."""

import asyncio
from dataclasses import dataclass

from service.bus import Identity
from service.config.settings import BusSettings
from service.envelope import Envelope
from service.errors import ContextBuilderError
from service.inbox import Delivery
from service.weight import LARGE
from service.wire import BuildRequest, RejectedError, decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A delivery, read: its envelope, and the request or what is wrong with it."""

    delivery: Delivery
    envelope: Envelope
    request: BuildRequest | None = None
    error: ContextBuilderError | None = None

    @property
    def identity(self) -> Identity:
        """Return what makes two requests the same one."""
        return Identity(self.envelope.owner_key, self.envelope.id)


async def read(delivery: Delivery, settings: BusSettings) -> Incoming:
    """Read a delivery; a large one in a thread, so that the event loop stays free.

    Raises:
        RejectedError: Nobody can be answered for it.
    """
    if len(delivery.payload) < LARGE:
        return _decoded(delivery, settings)
    return await asyncio.to_thread(_decoded, delivery, settings)


def _decoded(delivery: Delivery, settings: BusSettings) -> Incoming:
    try:
        request = decode(
            delivery.payload,
            received_at=delivery.received_at,
            max_bytes=settings.max_payload_bytes,
        )
    except RejectedError as rejected:
        if rejected.envelope is None:
            raise
        return Incoming(delivery=delivery, envelope=rejected.envelope, error=rejected.error)
    return Incoming(delivery=delivery, envelope=request.envelope, request=request)
