"""Send answers in batches: all that have accumulated go out in one round trip."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from service.errors import BusError, OverloadedError
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Answer, AnswerOutcome, Bus, Receipt
from service.worker.loop import Pulse, repeat_with_backoff

log = structlog.get_logger(__name__)

#: Limit of the answers in one round trip.
BATCH: Final = 64
#: After this many failed attempts, with the bus available, the request is returned to the stream.
MAX_ATTEMPTS: Final = 3


class Sender:
    """Sends answers in batches, and retries those that fail.

    The bus reports which answers of a batch failed. If it reports an error for the whole batch,
    the answers are sent one by one, so that an invalid one doesn't block the others.
    """

    def __init__(self, bus: Bus, metrics: Metrics = UNMEASURED, pulse: Pulse | None = None) -> None:
        self._bus = bus
        self._metrics = metrics
        self._pulse = pulse
        self._queue: asyncio.Queue[_Outgoing] = asyncio.Queue()
        self._batch: list[_Outgoing] = []
        self._one_by_one = False

    async def send(self, answer: Answer) -> Receipt:
        """Send an answer, through outages of the bus; returns its outcome.

        Raises:
            BusError: The bus is available, but this answer failed `MAX_ATTEMPTS` times.
        """
        outgoing = _Outgoing(answer, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(outgoing)
        return await outgoing.receipt

    async def run(self) -> None:
        """Send the answers given to `send`, until cancelled."""
        await repeat_with_backoff("sender", self._flush, pulse=self._pulse)

    async def _flush(self) -> None:
        # failed answers are retried before new ones
        if not self._batch:
            self._one_by_one = False
            self._batch.append(await self._queue.get())
        while len(self._batch) < BATCH and not self._queue.empty():
            self._batch.append(self._queue.get_nowait())
        parts = [[outgoing] for outgoing in self._batch] if self._one_by_one else [self._batch[:]]
        errors = [error for part in parts for error in await self._finish(part)]
        if errors and self._batch:
            raise errors[-1]

    async def _finish(self, part: Sequence["_Outgoing"]) -> list[BusError]:
        """Send answers in one round trip; returns the errors of single answers.

        Raises:
            BusError: All of them failed, for a reason that may not lie in any of them.
        """
        try:
            receipts = await self._bus.finish([outgoing.answer for outgoing in part])
        except BusError as error:
            await self._check_bus(error)
            if not self._one_by_one:
                self._one_by_one = True
                raise
            receipts = [Receipt(outcome=AnswerOutcome.FAILED, error=error)]
        return list(self._settle(part, receipts))

    def _settle(
        self, part: Sequence["_Outgoing"], receipts: Sequence[Receipt]
    ) -> Iterator[BusError]:
        """Deliver receipts to the senders; yields the errors among them."""
        for outgoing, receipt in zip(part, receipts, strict=True):
            if receipt.error is None:
                self._deliver(outgoing, receipt)
            else:
                self._count_failure(outgoing, receipt.error)
                yield receipt.error

    async def _check_bus(self, error: BusError) -> None:
        """Raise `BusError` if the bus is unavailable or overloaded: no answer is at fault."""
        if isinstance(error, OverloadedError):
            raise error
        await self._bus.ping()

    def _count_failure(self, outgoing: "_Outgoing", error: BusError) -> None:
        # an overloaded bus may report it for some answers only
        outgoing.failures += not isinstance(error, OverloadedError)
        if outgoing.failures < MAX_ATTEMPTS:
            return
        self._batch.remove(outgoing)
        if not outgoing.receipt.done():
            outgoing.receipt.set_exception(error)

    def _deliver(self, outgoing: "_Outgoing", receipt: Receipt) -> None:
        self._batch.remove(outgoing)
        if receipt.receivers == 0:
            self._metrics.count_unheard_reply()
            answer = outgoing.answer
            log.warning("reply.unheard", reply_to=answer.reply_to, request_id=answer.identity.id)
        if not outgoing.receipt.done():
            outgoing.receipt.set_result(receipt)


@dataclass(slots=True, eq=False)
class _Outgoing:
    """An answer, and the future of its receipt."""

    answer: Answer
    receipt: asyncio.Future[Receipt]
    #: Failures that no outage of the bus explains.
    failures: int = 0
