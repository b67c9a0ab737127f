"""Publish events on the bus."""

import uuid
from collections.abc import Mapping

import structlog

from service.errors import BusError
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Bus
from service.wire.events import NO_CAUSE, Event, EventMetadata

log = structlog.get_logger(__name__)


class EventPublisher:
    """Publishes events on the channels of a bus; failures are only logged."""

    def __init__(self, bus: Bus, metrics: Metrics = UNMEASURED) -> None:
        self._bus = bus
        self._metrics = metrics

    async def publish(
        self,
        topic: str,
        content: Mapping[str, object],
        *,
        owner_key: str,
        run_id: str | None,
        cause: EventMetadata = NO_CAUSE,
    ) -> None:
        """Publish an event on the channel of a topic."""
        event = Event[Mapping[str, object]](
            id=f"msg_{uuid.uuid4().hex}",
            run_id=run_id,
            owner_key=owner_key,
            timestamp=self._bus.now(),
            content=content,
            metadata=cause,
        )
        try:
            await self._bus.publish(topic, event.model_dump_json().encode())
        except (BusError, ValueError) as error:  # ValueError: the content isn't JSON
            self._metrics.count("events_lost")
            log.warning("event.lost", topic=topic, error=str(error))
