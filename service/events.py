"""Tells events on the bus; whoever listens hears them, and nobody waits for that."""

import uuid
from collections.abc import Mapping

import structlog

from service.bus import Bus
from service.errors import BusError
from service.event import UNCAUSED, Event, EventMetadata
from service.metrics import UNMEASURED, Metrics

log = structlog.get_logger()


class BusEvents:
    """The `Events` that go to the channels of a bus; what goes wrong is logged and nothing else."""

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
        cause: EventMetadata = UNCAUSED,
    ) -> None:
        """Tell what happened on a topic's channel."""
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
        except (BusError, ValueError) as error:  # a value that is no JSON is a ValueError
            self._metrics.event_lost()
            log.warning("event.lost", topic=topic, error=str(error))
