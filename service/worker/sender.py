"""Send answers in batches: all that have accumulated go out in one round trip."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from service.errors import BusError, OverloadedError
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Answer, AnswerOutcome, Bus, Receipt

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

    def __init__(self, bus: Bus, metrics: Metrics = UNMEASURED) -> None:
        self._bus = bus
        self._metrics = metrics
        self._waiting: deque[_Outgoing] = deque()
        #: Set as long as answers wait; a queue of asyncio's would take five times as long.
        self._arrived = asyncio.Event()
        self._batch: list[_Outgoing] = []
        self._one_by_one = False

    async def send(self, answer: Answer) -> Receipt:
        """Send an answer, through outages of the bus; returns its outcome.

        Raises:
            BusError: The bus is available, but this answer failed `MAX_ATTEMPTS` times.
        """
        outgoing = _Outgoing(answer, asyncio.get_running_loop().create_future())
        self._waiting.append(outgoing)
        self._arrived.set()
        return await outgoing.receipt

    async def flush(self) -> None:
        """Send a batch of the answers given to `send`; raises `BusError` if some remain unsent."""
        # failed answers are retried before new ones
        if not self._batch:
            self._one_by_one = False
            await self._arrived.wait()
        while self._waiting and len(self._batch) < BATCH:
            self._batch.append(self._waiting.popleft())
        if not self._waiting:
            self._arrived.clear()
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
            if isinstance(error, OverloadedError):
                raise
            await self._bus.ping()  # while the bus is unavailable, no answer is at fault
            if not self._one_by_one:
                self._one_by_one = True
                raise
            receipts = [Receipt(outcome=AnswerOutcome.FAILED, error=error)]
        for outgoing, receipt in zip(part, receipts, strict=True):
            self._settle(outgoing, receipt)
        return [receipt.error for receipt in receipts if receipt.error]

    def _settle(self, outgoing: "_Outgoing", receipt: Receipt) -> None:
        """Deliver a receipt to its sender, or the error of the last attempt."""
        error, waiting = receipt.error, outgoing.receipt
        if error:
            # an overloaded bus may report it for some answers only
            outgoing.failures += not isinstance(error, OverloadedError)
            if outgoing.failures < MAX_ATTEMPTS:
                return
        self._batch.remove(outgoing)
        if receipt.receivers == 0:
            self._metrics.count("reply_dropped", "no_subscriber")
            answer = outgoing.answer
            log.warning("reply.unheard", reply_to=answer.reply_to, request_id=answer.identity.id)
        if waiting.done():
            return
        if error:
            waiting.set_exception(error)
        else:
            waiting.set_result(receipt)


@dataclass(slots=True, eq=False)
class _Outgoing:
    """An answer, and the future of its receipt."""

    answer: Answer
    receipt: asyncio.Future[Receipt]
    #: Failures that no outage of the bus explains.
    failures: int = 0
