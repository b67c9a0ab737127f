"""Writes history from the bus: the inputs of requests, and the rows of other services' results."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from service.bus import Bus
from service.config.settings import Settings
from service.errors import HistoryUnavailableError, InvalidRequestError, StoreError
from service.inbox import Delivery
from service.loop import every, keep_on
from service.metrics import UNMEASURED, Metrics
from service.ports import HistoryStore
from service.result_row import read_result
from service.wire import BuildRequest

log = structlog.get_logger()

#: Rows taken from the bus at once.
BATCH: Final = 64
#: Seconds that a read waits for rows.
WAIT: Final = 0.5
#: Seconds until a row is tried again that the store did not take; well within any lease.
PAUSE: Final = 0.2


class Recorder:
    """Writes rows to a history, each once, however often they come."""

    def __init__(
        self,
        history: HistoryStore,
        bus: Bus,
        settings: Settings,
        metrics: Metrics = UNMEASURED,
    ) -> None:
        self._history = history
        self._inbox = bus.results
        self._settings = settings
        self._metrics = metrics

    async def record_input(self, request: BuildRequest) -> None:
        """Write the input of a request, as the human's row.

        Raises:
            HistoryUnavailableError: The store does not take it.
        """
        said = request.run.history[0]
        row = {
            "id": request.input_id,
            "run_id": request.run_id,
            "role": "HUMAN",
            "content": said.content,
            "timestamp": said.timestamp
            or request.run.metadata.client_timestamp_utc
            or _receipt(request),
            "metadata": said.metadata or {},
        }
        try:
            await self._history.append(
                request.owner_key, [row], conversation_id=request.conversation_id
            )
        except StoreError as error:
            if self._settings.gather.degrade_history:
                log.warning("recorder.input_lost", request_id=request.id, error=str(error))
                return
            raise HistoryUnavailableError("the input could not be recorded") from error

    async def run(self) -> None:
        """Write the rows that other services publish, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_on("recorder", self._take_new))
            tasks.create_task(
                every(self._settings.bus.lease_seconds, "recorder.claims", self._take_over)
            )

    async def _take_new(self) -> None:
        await self._record(await self._inbox.receive(BATCH, wait=WAIT))

    async def _take_over(self) -> None:
        await self._record(await self._inbox.claim(BATCH))

    async def _record(self, deliveries: Sequence[Delivery]) -> None:
        """Write rows in the order of their arrival, however long the store is away."""
        for place, delivery in enumerate(deliveries):
            while not await self._settled(delivery):
                await asyncio.sleep(PAUSE)
                # an outage of the store is no attempt: the rows stay here
                await self._inbox.renew(deliveries[place:])

    async def _settled(self, delivery: Delivery) -> bool:
        """Write a row and settle it; False where the store is away."""
        try:
            await self._write(delivery)
        except StoreError as error:
            log.warning("recorder.interrupted", entry=delivery.token, error=error.detail)
            return False
        except InvalidRequestError as error:
            log.warning("recorder.unreadable", entry=delivery.token, reason=error.detail)
            await self._inbox.dead_letter(delivery, error.detail)
            self._metrics.buried("result")
        else:
            await self._inbox.ack([delivery])
        return True

    async def _write(self, delivery: Delivery) -> None:
        if delivery.attempt > self._settings.bus.max_deliveries:
            raise InvalidRequestError(f"delivered {delivery.attempt - 1} times and never written")
        row = read_result(delivery.payload, max_bytes=self._settings.bus.max_payload_bytes)
        fields = row.model_dump(exclude={"owner_key", "conversation_id"})
        stamped = {**fields, "timestamp": row.timestamp or delivery.received_at.isoformat()}
        await self._history.append(row.owner_key, [stamped], conversation_id=row.conversation_id)


def _receipt(request: BuildRequest) -> str | None:
    return request.received_at.isoformat() if request.received_at else None
