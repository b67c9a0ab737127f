"""Writes history from the bus: the inputs of requests, and the rows of other services' results."""

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
from service.worker.loop import every, keep_on

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
        #: Deliveries that are being written, or wait for that.
        self._held: list[Delivery] = []
        #: What the store said since it took a row: an outage is told of once, not at each attempt.
        self._told: set[str] = set()

    async def record_input(self, request: BuildRequest) -> None:
        """Write the input of a request, as the human's row.

        Raises:
            HistoryUnavailableError: The store does not take it now.
            InvalidRequestError: The store never takes it.
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
            if isinstance(error, RowRefusedError):
                raise InvalidRequestError("the store refuses the input") from error
            raise HistoryUnavailableError("the input could not be recorded") from error

    async def run(self) -> None:
        """Write the rows that other services publish, until cancelled."""
        bus = self._settings.bus
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_on("recorder", self._take_new))
            tasks.create_task(every(bus.lease_seconds, "recorder.claims", self._take_over))
            tasks.create_task(every(bus.heartbeat_seconds, "recorder.leases", self._renew))

    async def _take_new(self) -> None:
        await self._record(await self._inbox.receive(BATCH, wait=WAIT))

    async def _take_over(self) -> None:
        # one at a time: one that ends the process must not cost the others a delivery as well
        while claimed := await self._inbox.claim(1):
            await self._record(claimed)

    async def _renew(self) -> None:
        """Keep leases while a store is slow: it may answer after longer than that."""
        if self._held:
            await self._inbox.renew(list(self._held))

    async def _record(self, deliveries: Sequence[Delivery]) -> None:
        """Write rows in the order of their arrival, however long the store is away."""
        self._held += deliveries
        left = list(deliveries)
        try:
            while left:
                if await self._settled(left[0]):
                    self._held.remove(left.pop(0))
                    continue
                # an outage of the store is no attempt, whichever worker sees the end of it
                await self._inbox.forgive(left)
                await asyncio.sleep(PAUSE)
        finally:
            for delivery in left:
                self._held.remove(delivery)

    async def _settled(self, delivery: Delivery) -> bool:
        """Write a row and settle it; False where the store is away."""
        try:
            await self._write(delivery)
        except (InvalidRequestError, RowRefusedError) as error:
            log.warning("recorder.unreadable", entry=delivery.token, reason=error.detail)
            await self._inbox.dead_letter(delivery, error.detail)
            self._metrics.buried("result")
        except StoreError as error:
            if error.detail not in self._told:
                log.warning("recorder.interrupted", entry=delivery.token, error=error.detail)
            self._told.add(error.detail)
            return False
        else:
            self._told.clear()
            await self._inbox.ack([delivery])
        return True

    async def _write(self, delivery: Delivery) -> None:
        if delivery.attempt > self._settings.bus.max_deliveries:
            raise InvalidRequestError(f"delivered {delivery.attempt - 1} times and never written")
        row = read_result(delivery.payload, max_bytes=self._settings.bus.max_payload_bytes)
        fields = row.model_dump(exclude={"owner_key", "conversation_id"})
        stamped = {**fields, "timestamp": row.timestamp or delivery.received_at.isoformat()}
        new = await self._history.append(
            row.owner_key, [stamped], conversation_id=row.conversation_id
        )
        if not new:
            await self._compare(row, delivery)

    async def _compare(self, row: ResultRow, delivery: Delivery) -> None:
        """Tell of a row whose id another one has: the first stays."""
        stored = await self._history.rows(row.owner_key, [row.id])
        if stored and _differs(stored[0], row):
            log.warning(
                "recorder.conflict",
                owner_key=row.owner_key,
                row_id=row.id,
                entry=delivery.token,
            )


def _receipt(request: BuildRequest) -> str | None:
    return request.received_at.isoformat() if request.received_at else None


def _differs(stored: Row, row: ResultRow) -> bool:
    """Tell whether a row says something else than the one that is stored under its id."""
    noted = stored.get("metadata")
    known = noted if isinstance(noted, Mapping) else {}
    given = row.metadata or {}
    return (
        stored.get("content") != row.content
        or read_role(stored.get("role")) is not read_role(row.role)
        or any(known.get(name) != value for name, value in given.items())
    )
