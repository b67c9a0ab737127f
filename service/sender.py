"""Answers on their way out: collected, and sent in batches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from service.bus import Answer, Bus, Receipt
from service.errors import BusError, OverloadedError
from service.health import Pulse
from service.loop import keep_on
from service.metrics import UNMEASURED, Metrics

log = structlog.get_logger()

#: Answers in one round trip at most.
BATCH: Final = 64
#: Tries of an answer alone, each failing though the bus is there, after which it is given up.
TRIES: Final = 3


class Sender:
    """Sends answers: as many in one round trip as have come together since the last.

    Where that fails though the bus is there, they go one by one: one of them is at fault, and must
    not hold up the others.
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
        if self._one_by_one:
            await self._send_one_by_one()
        else:
            await self._send_together()

    async def _send_together(self) -> None:
        try:
            await self._finish(self._batch)
        except BusError as error:
            await self._check_bus(error)
            self._one_by_one = True
            raise

    async def _send_one_by_one(self) -> None:
        """Try each answer; raises the last error where one of them is to be tried again."""
        last: BusError | None = None
        for each in tuple(self._batch):
            try:
                await self._finish([each])
            except BusError as error:
                await self._check_bus(error)
                last = error
                self._count_failure(each, error)
        if last and self._batch:
            raise last

    async def _check_bus(self, error: BusError) -> None:
        """Raise `BusError` where the bus is away or takes from nobody: no answer is at fault."""
        if isinstance(error, OverloadedError):
            raise error
        await self._bus.ping()

    def _count_failure(self, failed: "_Outgoing", error: BusError) -> None:
        failed.failures += 1
        if failed.failures < TRIES:
            return
        self._batch.remove(failed)
        if not failed.receipt.done():
            failed.receipt.set_exception(error)

    async def _finish(self, part: Sequence["_Outgoing"]) -> None:
        receipts = await self._bus.finish([each.answer for each in part])
        for each, receipt in zip(tuple(part), receipts, strict=True):
            if receipt.receivers == 0:
                self._metrics.unheard()
                answer = each.answer
                log.warning(
                    "reply.unheard", reply_to=answer.reply_to, request_id=answer.identity.id
                )
            if not each.receipt.done():
                each.receipt.set_result(receipt)
            self._batch.remove(each)


@dataclass(slots=True, eq=False)
class _Outgoing:
    """An answer, and whoever waits for its receipt."""

    answer: Answer
    receipt: asyncio.Future[Receipt]
    #: How often it failed alone.
    failures: int = 0
