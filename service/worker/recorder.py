"""Record history from the bus: the inputs of requests, and the results of other services."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from formatters.model import Row
from formatters.rows import read_role
from service.config.settings import Settings
from service.errors import (
    HistoryUnavailableError,
    InvalidRequestError,
    RowRefusedError,
    StoreError,
)
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Bus
from service.ports.stores import HistoryStore
from service.ports.stream import Delivery
from service.wire.request import BuildRequest
from service.wire.result_row import ResultRow, read_result
from service.worker.loop import every, repeat_with_backoff

log = structlog.get_logger(__name__)

#: Limit of the rows in one read.
BATCH: Final = 64
#: Seconds that a read waits for rows.
WAIT: Final = 0.5
#: Seconds before a row is retried after a store's failure; well within any lease.
PAUSE: Final = 0.2


class Recorder:
    """Writes rows to a history, each once, however often they are delivered."""

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
        #: Deliveries in work.
        self._held: list[Delivery] = []
        #: Errors of the current outage: each is logged once.
        self._logged: set[str] = set()

    async def record_input(self, request: BuildRequest) -> None:
        """Write the input of a request as a human row.

        Raises:
            HistoryUnavailableError: The store is unavailable.
            InvalidRequestError: The store refuses the row.
        """
        message = request.run.history[0]
        row = {
            "id": request.input_id,
            "run_id": request.run_id,
            "role": "HUMAN",
            "content": message.content,
            "timestamp": message.timestamp
            or request.run.metadata.client_timestamp_utc
            or _receipt_time(request),
            "metadata": message.metadata or {},
        }
        try:
            await self._history.append(
                request.owner_key, [row], conversation_id=request.conversation_id
            )
        except StoreError as error:
            if self._settings.gather.degrade_history:
                log.warning("recorder.input_lost", request_id=request.id, error=str(error))
                return
            if isinstance(error, RowRefusedError):
                raise InvalidRequestError("the store refuses the input") from error
            raise HistoryUnavailableError("the input could not be recorded") from error

    async def run(self) -> None:
        """Write the results of other services, until cancelled."""
        bus = self._settings.bus
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeat_with_backoff("recorder", self._take_new))
            tasks.create_task(every(bus.lease_seconds, "recorder.claims", self._claim))
            tasks.create_task(every(bus.heartbeat_seconds, "recorder.leases", self._renew))

    async def _take_new(self) -> None:
        await self._record(await self._inbox.receive(BATCH, wait=WAIT))

    async def _claim(self) -> None:
        # one at a time: a row that kills the process must not cost the others an attempt
        while claimed := await self._inbox.claim(1):
            await self._record(claimed)

    async def _renew(self) -> None:
        """Renew the leases, since a slow store may take longer than one."""
        if self._held:
            await self._inbox.renew(list(self._held))

    async def _record(self, deliveries: Sequence[Delivery]) -> None:
        """Write rows in the order of their arrival, through outages of the store."""
        self._held += deliveries
        remaining = list(deliveries)
        try:
            while remaining:
                if await self._settle(remaining[0]):
                    self._held.remove(remaining.pop(0))
                    continue
                # an outage of the store doesn't count as an attempt
                await self._inbox.reset_attempts(remaining)
                await asyncio.sleep(PAUSE)
        finally:
            for delivery in remaining:
                self._held.remove(delivery)

    async def _settle(self, delivery: Delivery) -> bool:
        """Write a row and acknowledge it; return False if the store is unavailable."""
        try:
            await self._write(delivery)
        except (InvalidRequestError, RowRefusedError) as error:
            log.warning("recorder.unreadable", entry=delivery.token, reason=error.detail)
            await self._inbox.dead_letter(delivery, error.detail)
            self._metrics.count_dead_letter("result")
        except StoreError as error:
            if error.detail not in self._logged:
                log.warning("recorder.interrupted", entry=delivery.token, error=error.detail)
            self._logged.add(error.detail)
            return False
        else:
            self._logged.clear()
            await self._inbox.ack([delivery])
        return True

    async def _write(self, delivery: Delivery) -> None:
        if delivery.attempt > self._settings.bus.max_deliveries:
            raise InvalidRequestError(f"delivered {delivery.attempt - 1} times, never written")
        row = read_result(delivery.payload, max_bytes=self._settings.bus.max_payload_bytes)
        fields = row.model_dump(exclude={"owner_key", "conversation_id"})
        timed_row = {**fields, "timestamp": row.timestamp or delivery.received_at.isoformat()}
        new = await self._history.append(
            row.owner_key, [timed_row], conversation_id=row.conversation_id
        )
        if not new:
            await self._warn_of_conflict(row, delivery)

    async def _warn_of_conflict(self, row: ResultRow, delivery: Delivery) -> None:
        """Log a row whose id belongs to a different row; the first one stays."""
        stored = await self._history.rows(row.owner_key, [row.id])
        if stored and _differs(stored[0], row):
            log.warning(
                "recorder.conflict",
                owner_key=row.owner_key,
                row_id=row.id,
                entry=delivery.token,
            )


def _receipt_time(request: BuildRequest) -> str | None:
    return request.received_at.isoformat() if request.received_at else None


def _differs(stored: Row, row: ResultRow) -> bool:
    """Return whether a row differs from the stored one with its id."""
    stored_metadata = stored.get("metadata")
    known = stored_metadata if isinstance(stored_metadata, Mapping) else {}
    given = row.metadata or {}
    return (
        stored.get("content") != row.content
        or read_role(stored.get("role")) is not read_role(row.role)
        or any(known.get(name) != value for name, value in given.items())
    )
