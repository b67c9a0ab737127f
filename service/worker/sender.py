"""Answers on their way out: collected, and sent in batches."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from service.errors import BusError, OverloadedError
from service.observe.health import Pulse
from service.observe.metrics import UNMEASURED, Metrics
from service.ports.bus import Answer, Bus, Outcome, Receipt
from service.worker.loop import keep_on

log = structlog.get_logger()

#: Answers in one round trip at most.
BATCH: Final = 64
#: Tries at which an answer fails though the bus is there, after which it is given up.
TRIES: Final = 3


class Sender:
    """Sends answers: as many in one round trip as have come together since the last.

    The bus tells which of them failed, and these are tried again. Where it can't tell, though it is
    there, they go one by one: one of them is at fault, and must not hold up the others.
    """

    def __init__(self, bus: Bus, metrics: Metrics = UNMEASURED, pulse: Pulse | None = None) -> None:
        self._bus = bus
        self._metrics = metrics
        self._pulse = pulse
        self._waiting: asyncio.Queue[_Outgoing] = asyncio.Queue()
        self._batch: list[_Outgoing] = []
        self._one_by_one = False

    async def send(self, answer: Answer) -> Receipt:
        """Send an answer, through outages of the bus; returns what became of it.

        Raises:
            BusError: The bus is there, but fails at this answer again and again.
        """
        outgoing = _Outgoing(answer, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(outgoing)
        return await outgoing.receipt

    async def run(self) -> None:
        """Send what is given to `send`, until cancelled."""
        await keep_on("sender", self._flush, pulse=self._pulse)

    async def _flush(self) -> None:
        # what could not be sent is tried again before anything new
        if not self._batch:
            self._one_by_one = False
            self._batch.append(await self._waiting.get())
        while len(self._batch) < BATCH and not self._waiting.empty():
            self._batch.append(self._waiting.get_nowait())
        failures = [error for part in self._parts() for error in await self._finish(part)]
        if failures and self._batch:
            raise failures[-1]

    def _parts(self) -> Sequence[Sequence["_Outgoing"]]:
        """Return what goes in one round trip each."""
        return [[each] for each in self._batch] if self._one_by_one else [tuple(self._batch)]

    async def _finish(self, part: Sequence["_Outgoing"]) -> list[BusError]:
        """Send a part; returns the errors of those in it that failed by themselves.

        Raises:
            BusError: The bus fails at all of them, and not for what is in them as far as we know.
        """
        try:
            receipts = await self._bus.finish([each.answer for each in part])
        except BusError as error:
            await self._check_bus(error)
            if not self._one_by_one:
                self._one_by_one = True
                raise
            receipts = [Receipt(outcome=Outcome.FAILED, error=error)]
        return list(self._settled(part, receipts))

    def _settled(
        self, part: Sequence["_Outgoing"], receipts: Sequence[Receipt]
    ) -> Iterator[BusError]:
        """Hand out receipts; yields the errors among them."""
        for each, receipt in zip(part, receipts, strict=True):
            if receipt.error is None:
                self._hand_out(each, receipt)
            else:
                self._count_failure(each, receipt.error)
                yield receipt.error

    async def _check_bus(self, error: BusError) -> None:
        """Raise `BusError` where the bus is away or takes from nobody: no answer is at fault."""
        if isinstance(error, OverloadedError):
            raise error
        await self._bus.ping()

    def _count_failure(self, failed: "_Outgoing", error: BusError) -> None:
        # a bus that takes from nobody may not say so of all
        failed.failures += not isinstance(error, OverloadedError)
        if failed.failures < TRIES:
            return
        self._batch.remove(failed)
        if not failed.receipt.done():
            failed.receipt.set_exception(error)

    def _hand_out(self, each: "_Outgoing", receipt: Receipt) -> None:
        self._batch.remove(each)
        if receipt.receivers == 0:
            self._metrics.unheard()
            answer = each.answer
            log.warning("reply.unheard", reply_to=answer.reply_to, request_id=answer.identity.id)
        if not each.receipt.done():
            each.receipt.set_result(receipt)


@dataclass(slots=True, eq=False)
class _Outgoing:
    """An answer, and whoever waits for its receipt."""

    answer: Answer
    receipt: asyncio.Future[Receipt]
    #: How often it failed, and nothing else was at fault.
    failures: int = 0
