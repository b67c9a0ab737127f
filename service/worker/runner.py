"""The worker: takes deliveries while it has free slots, renews their leases, drains on shutdown."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from service.build.after_answer import AfterAnswer
from service.config.settings import Settings
from service.errors import BusError
from service.observe.health import Probe
from service.observe.tracing import current_span, record_failure
from service.ports.bus import Bus, StoredResult
from service.ports.stream import Delivery, Inbox
from service.worker.handler import Handler, Incoming
from service.worker.loop import Pulse, every, repeat_with_backoff
from service.worker.telemetry import BusSpans

log = structlog.get_logger(__name__)

#: Seconds that a read waits for requests; a worker notices a shutdown within it.
WAIT: Final = 0.5
#: Seconds between two rounds of trimming the streams and synchronizing with the bus's clock.
HOUSEKEEPING: Final = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """Answers the requests of a bus, several at a time; `service.app.make_worker` assembles it."""

    bus: Bus
    settings: Settings
    handler: Handler
    spans: BusSpans
    #: What health checks see of the worker.
    pulse: Pulse
    #: What the worker depends on, each with a check.
    probes: Mapping[str, Probe]
    #: Tasks that run beside the requests until the worker has drained.
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]]
    #: Work on builds after their answers; it runs in the background, and is drained last.
    after_answer: Sequence[AfterAnswer]
    _running: dict[asyncio.Task[None], Delivery] = field(init=False, default_factory=dict)
    #: Held from the check for free slots until they are taken.
    _taking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def run(self, stop: asyncio.Event) -> bool:
        """Work until ``stop`` is set, then finish the requests in work.

        Returns whether all of them finished within the shutdown timeout. The others stay in the
        stream, for another worker.
        """
        self.pulse.begin(stop)
        bus = self.settings.bus
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(run)
                for run in (
                    *(run() for run in self.background),
                    *(work.run() for work in self.after_answer),
                    every(bus.heartbeat_seconds, "heartbeat", self._renew),
                    every(bus.lease_seconds / 3, "claims", partial(self._claim, stop)),
                    every(HOUSEKEEPING, "housekeeping", self._trim),
                )
            ]
            log.info("worker.started", slots=self.settings.worker.concurrency)
            await repeat_with_backoff("requests", self._take_new, stop, self.pulse)
            drained = await self._drain()
            for work in self.after_answer:
                await work.drain()
            for task in background:
                task.cancel()
        await asyncio.gather(*map(_leave, (self.bus.requests, self.bus.results)))
        log.info("worker.stopped", drained=drained)
        return drained

    async def _take_new(self) -> None:
        self._beat()
        if not await self._has_free_slot():
            return
        async with self._taking:
            await self._start(await self.bus.requests.receive(self._free, wait=WAIT))

    async def _claim(self, stop: asyncio.Event) -> None:
        """Claim the deliveries of dead workers before any new ones, since they waited longest.

        One at a time, and none during the last attempt of another: if that request kills its
        workers, the requests beside it get their own last attempt without it.
        """
        async with self._taking:
            while not stop.is_set() and await self._has_free_slot() and not await self._on_trial():
                self._beat()
                claimed = await self.bus.requests.claim(1)
                if not claimed:
                    return
                await self._start(claimed)

    async def _on_trial(self) -> bool:
        """Wait a moment for requests on their last attempt; return whether any still runs."""
        last = max(self.settings.bus.max_deliveries, 2)
        trials = [task for task, delivery in self._running.items() if delivery.attempt >= last]
        if not trials:
            return False
        _, pending = await asyncio.wait(trials, timeout=WAIT)
        return bool(pending)

    async def _has_free_slot(self) -> bool:
        """Return whether there is a free slot; waits a moment for one."""
        if self._free <= 0:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT)
        return self._free > 0

    async def _start(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        received_at = self.spans.now()
        incoming = await self.handler.read(deliveries)
        results = await self.bus.find_results([request.identity for request in incoming])
        self.spans.record_receipt(incoming, received_at)
        for request, result in zip(incoming, results, strict=True):
            # no task group: `_drain` waits for these tasks, and they raise nothing
            task = asyncio.create_task(self._handle(request, result))
            self._running[task] = request.delivery
            task.add_done_callback(self._running.pop)

    async def _handle(self, incoming: Incoming, result: StoredResult | None) -> None:
        with self.spans.process_span(incoming):
            try:
                await self.handler.handle(incoming, result)
            except Exception as error:  # a request must not end the worker, whatever it causes
                record_failure(current_span(), error)
                log.exception("request.failed", request_id=incoming.identity.id)
                with suppress(BusError):  # without it, the lease expires
                    await self.bus.requests.release([incoming.delivery])

    async def _renew(self) -> None:
        if self._running:
            await self.bus.requests.renew(list(self._running.values()))

    async def _trim(self) -> None:
        await self.bus.ping()
        await self.bus.requests.trim()
        if self.settings.recorder.enabled:
            await self.bus.results.trim()

    async def _drain(self) -> bool:
        """Wait for the requests in work; return whether all finished in time."""
        if not self._running:
            return True
        log.info("worker.draining", running=len(self._running))
        seconds = self.settings.worker.shutdown_timeout_seconds
        _, pending = await asyncio.wait(self._running, timeout=seconds)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        return not pending

    @property
    def in_flight(self) -> int:
        """Return the number of requests in work."""
        return len(self._running)

    @property
    def _free(self) -> int:
        return self.settings.worker.concurrency - len(self._running)

    def _beat(self) -> None:
        """Record that requests are still being read."""
        self.pulse.beat()
        if self.settings.worker.heartbeat_file:
            self.settings.worker.heartbeat_file.touch()


async def _leave(inbox: Inbox) -> None:
    """Unregister from the group of an inbox; the bus forgets a worker that can't."""
    with suppress(BusError):
        await inbox.leave()
