"""Record history from the bus: the inputs of requests, and the results of other services."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from formatters.model import Message, Role, Row
from formatters.rows import read_role
from formatters.times import parse_timestamp
from service.build.brought_rows import explain_foreign, misnamed_keys
from service.config.settings import Settings
from service.errors import (
    BusError,
    HistoryUnavailableError,
    InvalidRequestError,
    RowRefusedError,
    StoreError,
    shown,
)
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import NO_DATA, Bus, Delivery
from service.ports.stores import HistoryStore
from service.wire.history_row import ImportRow, ResultRow, read_row
from service.wire.payload import read_json
from service.wire.protocol import Topics
from service.wire.request import BuildRequest
from service.wire.response import WarningRecord

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
        self, history: HistoryStore, bus: Bus, settings: Settings, metrics: Metrics = UNMEASURED
    ) -> None:
        self._history = history
        self._inbox = bus.results
        self._settings = settings
        self._metrics = metrics
        #: Deliveries in work.
        self._held: list[Delivery] = []
        #: Errors of the current outage: each is logged once.
        self._logged: set[str] = set()

    async def record_input(
        self, request: BuildRequest, stored: Sequence[Message] = ()
    ) -> WarningRecord | None:
        """Write the input of a request as a human row; returns a warning if it isn't stored.

        Nothing is written if it is one of the rows that were just found ``stored``, as in each
        iteration of a run after the first.

        Raises:
            HistoryUnavailableError: The store is unavailable.
            InvalidRequestError: The store refuses the row.
        """
        message = request.run.history[0]
        known = (request.input_id, Role.HUMAN, message.content)
        if any((each.id, each.role, each.content) == known for each in stored):
            return None
        received = request.received_at and request.received_at.isoformat()
        given = (message.timestamp, request.run.metadata.client_timestamp_utc)
        row = {
            "id": request.input_id,
            "run_id": request.run_id,
            "role": "HUMAN",
            "content": message.content,
            "timestamp": next(filter(parse_timestamp, given), received),
            "metadata": message.metadata or {},
        }
        try:
            is_stored = await self._store_input(request, row)
        except StoreError as error:
            if self._settings.gather.degrade_history:
                log.warning("recorder.input_lost", request_id=request.id, error=str(error))
                return self._input_warning("the input could not be recorded")
            if isinstance(error, RowRefusedError):
                raise InvalidRequestError("the store refuses the input") from error
            log.warning("recorder.unavailable", request_id=request.id, error=str(error))
            raise HistoryUnavailableError("the input could not be recorded") from error
        if is_stored:
            return None
        names = {"owner_key": request.owner_key, "row_id": request.input_id}
        log.warning("recorder.conflict", **names, request_id=request.id)
        taken = f"the input isn't in the history: the id {shown(request.input_id)} is another row's"
        return self._input_warning(taken)

    async def _store_input(self, request: BuildRequest, row: Row) -> bool:
        """Return whether the input is stored now; an earlier version of the service may have."""
        owner_key = request.owner_key
        if former := request.former_ids:
            row_id, run_id = former
            stored = await self._history.rows(owner_key, [row_id])
            if stored and _is_input(stored[0], row) and stored[0].get("run_id") == run_id:
                return True
        conversation = request.conversation_id
        if await self._history.append(owner_key, [row], conversation_id=conversation):
            return True
        stored = await self._history.rows(owner_key, [request.input_id])
        return bool(stored) and _is_input(stored[0], row)

    def _input_warning(self, detail: str) -> WarningRecord:
        self._metrics.count("rows_not_stored", "input")
        return WarningRecord(code="input_not_stored", detail=detail)

    async def take_new(self) -> None:
        """Write the results that other services have published."""
        await self._record(await self._inbox.receive(BATCH, wait=WAIT))

    async def claim(self) -> None:
        """Write the results that dead workers have left."""
        # one at a time: a row that kills the process must not cost the others an attempt; and
        # counted once it is written, for a claim whose reply is lost is no attempt
        while claimed := await self._inbox.claim(1, counted=False):
            await self._record(claimed)

    async def renew(self) -> None:
        """Renew the leases, since a slow store may take longer than one."""
        if self._held:
            await self._inbox.renew(list(self._held))

    async def _record(self, deliveries: Sequence[Delivery]) -> None:
        """Write rows in the order of their arrival, through outages of the store and the bus.

        A row with an unsettled earlier version stays in the stream until its lease expires.
        """
        self._held += deliveries
        remaining = list(deliveries)
        try:
            earlier = [_version(each) for each in await self._inbox.find_earlier(deliveries)]
            while remaining:
                if _is_preceded(remaining[0], earlier) or await self._settle(remaining[0]):
                    self._held.remove(remaining.pop(0))
                    continue
                with suppress(BusError):  # an outage doesn't count as an attempt
                    await self._inbox.set_attempts(remaining, 1)
                await asyncio.sleep(PAUSE)
        finally:
            for delivery in remaining:
                self._held.remove(delivery)

    async def _settle(self, delivery: Delivery) -> bool:
        """Write a row and acknowledge it; return False if the store or the bus is unavailable.

        A row that the dead-letter stream can't take stays in the stream until its lease expires.
        """
        try:
            if delivery.attempt > 1:
                await self._inbox.set_attempts([delivery], delivery.attempt)
            try:
                await self._write(delivery)
            except (InvalidRequestError, RowRefusedError) as error:
                if await self._inbox.dead_letter(delivery, error.detail):
                    log.warning("recorder.unreadable", entry=delivery.token, reason=error.detail)
                    self._metrics.count("dead_letters", "result")
                else:
                    await self._inbox.set_attempts([delivery], 1)
            else:
                await self._inbox.ack([delivery])
        except (StoreError, BusError) as error:
            if error.detail not in self._logged:
                log.warning("recorder.interrupted", entry=delivery.token, error=error.detail)
            self._logged.add(error.detail)
            return False
        self._logged.clear()
        return True

    async def _write(self, delivery: Delivery) -> None:
        if delivery.attempt > self._settings.bus.max_deliveries:
            raise InvalidRequestError(f"delivered {times(delivery.attempt - 1)}, never written")
        if not delivery.payload:
            raise InvalidRequestError(NO_DATA)
        model = ImportRow if delivery.source == Topics.HISTORY_IMPORT else ResultRow
        row = read_row(model, delivery.payload, max_bytes=self._settings.bus.max_payload_bytes)
        fields = row.model_dump(exclude={"owner_key", "conversation_id"})
        timed_row = {**fields, "timestamp": row.timestamp or delivery.received_at.isoformat()}
        new = await self._history.append(
            row.owner_key, [timed_row], conversation_id=row.conversation_id
        )
        names = {"owner_key": row.owner_key, "row_id": row.id, "entry": delivery.token}
        if new and (reason := explain_foreign(fields)):
            log.warning("recorder.not_read", **names, reason=reason)
        if new and row.timestamp is not None and parse_timestamp(row.timestamp) is None:
            log.warning("recorder.not_read", **names, reason="timestamp: write ISO 8601")
        for warning in misnamed_keys([fields] if new else (), ""):
            pointer = (warning.pointer or "").removeprefix("/0")
            log.warning("recorder.unknown_key", **names, reason=f"{pointer} {warning.detail}")
        # the first row of an id stays
        stored = [] if new else await self._history.rows(row.owner_key, [row.id])
        if stored and row.differs(stored[0]):
            log.warning("recorder.conflict", **names)
            self._metrics.count("rows_not_stored", "result")


#: The key that the versions of a row share, and their order in the stream.
_Version = tuple[tuple[object, ...], tuple[int, ...]]


def _version(delivery: Delivery) -> _Version:
    """Return which row a delivery is a version of; one that can't be read is of none."""
    with suppress(InvalidRequestError):
        raw = read_json(delivery.payload, max_bytes=len(delivery.payload))
        return (delivery.source, raw.get("owner_key"), raw.get("id")), delivery.order
    return (), delivery.order


def _is_preceded(delivery: Delivery, earlier: Sequence[_Version]) -> bool:
    """Return whether one of the unsettled entries is an earlier version of the same row."""
    row, order = _version(delivery) if earlier else ((), ())
    return bool(row) and any(other == row and before < order for other, before in earlier)


def times(number: int) -> str:
    """Return how often something happened, as a text."""
    return "once" if number == 1 else f"{number} times"


def _is_input(stored: Row, row: Row) -> bool:
    """Return whether a stored row is an input with the same text."""
    return stored.get("content") == row["content"] and read_role(stored.get("role")) is Role.HUMAN
