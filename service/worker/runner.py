"""The runner: takes deliveries while it has slots, keeps their leases, drains when told to."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from service.audit.reports import BuildReport, BuildReports
from service.builder import ContextBuilder
from service.errors import BusError
from service.observe.health import Probe, Pulse
from service.observe.tracing import current, fail
from service.ports.bus import Bus, StoredResult
from service.ports.stream import Delivery, Inbox
from service.worker.events import BusEvents, Departures
from service.worker.handler import Handler, Incoming
from service.worker.ingress import Ingress
from service.worker.loop import every, keep_on
from service.worker.recorder import Recorder
from service.worker.retention import INTERVAL, Retention
from service.worker.sender import Sender
from service.worker.telemetry import BusSpans

log = structlog.get_logger()

#: Seconds that a read waits for requests; a worker that is told to stop notices within it.
WAIT: Final = 0.5
#: Seconds between two rounds of trimming the stream and asking the bus for its time.
HOUSEKEEPING: Final = 5.0
#: Whose history is read to see whether the store answers; it need not have any.
PROBED_OWNER: Final = "ctxb-readiness"


class Worker:
    """Answers the requests of a bus, several at a time."""

    def __init__(
        self,
        bus: Bus,
        builder: ContextBuilder,
        reported: Callable[[BuildReport], object] | None = None,
    ) -> None:
        """Work on a bus; ``reported`` is called with each build report once it is stored."""
        self._bus = bus
        self._settings = builder.settings
        self._history = builder.history
        self._prompts = builder.sources.prompts
        #: What probes see of it.
        self.pulse = Pulse()
        self._spans = BusSpans(builder.tracer, builder.settings.bus)
        self._sender = Sender(bus, builder.metrics, self.pulse)
        recording = builder.settings.recorder.enabled
        recorder = Recorder(builder.history, bus, builder.settings, builder.metrics)
        self._recorder = recorder if recording else None
        events = BusEvents(bus, builder.metrics)
        departures = Departures(
            builder.history, events, builder.tokenizers, builder.settings.events
        )
        reports = BuildReports(bus.reports, builder.settings, bus.now, reported)
        self._afterwards = (reports, departures.afterwards)
        self._retention = Retention(builder.history, builder.settings, bus.now)
        self._handler = Handler(bus, builder, self._sender, self._recorder, self._afterwards)
        self._ingress = Ingress(bus, self._handler.refuse, self.pulse)
        self._running: dict[asyncio.Task[None], Delivery] = {}
        #: Held from the look at the free slots until they are taken.
        self._taking = asyncio.Lock()

    async def run(self, stop: asyncio.Event) -> bool:
        """Work until ``stop`` is set, then finish what was started.

        Returns whether all of it was finished within the time for shutting down. What was not
        stays with the bus, for another worker.
        """
        self.pulse.begin(stop)
        lease = self._settings.bus.lease_seconds
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._ingress.run()),
                tasks.create_task(self._ingress.run_held()),
                tasks.create_task(self._sender.run()),
                *(tasks.create_task(work.run()) for work in self._afterwards),
                tasks.create_task(
                    every(self._settings.bus.heartbeat_seconds, "heartbeat", self._renew)
                ),
                tasks.create_task(every(lease / 3, "claims", partial(self._take_over, stop))),
                tasks.create_task(every(HOUSEKEEPING, "housekeeping", self._keep_house)),
                tasks.create_task(every(INTERVAL, "retention", self._retention.enforce)),
            ]
            if self._recorder:
                background.append(tasks.create_task(self._recorder.run()))
            if self._prompts:
                seconds = self._settings.prompts.reload_seconds
                step = self._prompts.refresh
                background.append(tasks.create_task(every(seconds, "prompts", step)))
            log.info("worker.started", slots=self._settings.worker.concurrency)
            await keep_on("requests", self._take_new, stop, self.pulse)
            drained = await self._drain()
            for work in self._afterwards:
                await work.drain()
            for task in background:
                task.cancel()
        await asyncio.gather(*map(_leave, (self._bus.requests, self._bus.results)))
        log.info("worker.stopped", drained=drained)
        return drained

    async def _take_new(self) -> None:
        self._show_life()
        if not await self._slot_comes():
            return
        async with self._taking:
            await self._start(await self._bus.requests.receive(self._free, wait=WAIT))

    async def _take_over(self, stop: asyncio.Event) -> None:
        """Take what others have left, all of it before anything new: it has waited longest.

        One at a time, and none beside one that is built for the last time: that may be what its
        workers died of, and those that it took with it get a last time without it.
        """
        async with self._taking:
            while not stop.is_set() and await self._slot_comes() and not await self._on_trial():
                self._show_life()
                claimed = await self._bus.requests.claim(1)
                if not claimed:
                    return
                await self._start(claimed)

    async def _on_trial(self) -> bool:
        """Wait a little for a request that is built for the last time; say whether one still is."""
        least = max(self._settings.bus.max_deliveries, 2)
        trials = [task for task, held in self._running.items() if held.attempt >= least]
        if not trials:
            return False
        _, left = await asyncio.wait(trials, timeout=WAIT)
        return bool(left)

    async def _slot_comes(self) -> bool:
        """Wait a little for a free slot; returns whether there is one."""
        if self._free <= 0:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT)
        return self._free > 0

    async def _start(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        began = self._spans.began()
        incoming = await self._handler.read(deliveries)
        stored = await self._bus.stored([each.identity for each in incoming])
        self._spans.received(incoming, began)
        for each, result in zip(incoming, stored, strict=True):
            # no task group: `_drain` waits for these, and they end with no exception
            task = asyncio.create_task(self._handle(each, result))
            self._running[task] = each.delivery
            task.add_done_callback(self._running.pop)

    async def _handle(self, incoming: Incoming, stored: StoredResult | None) -> None:
        with self._spans.process(incoming):
            try:
                await self._handler.handle(incoming, stored)
            except Exception as error:  # whatever one request does, the worker lives on
                fail(current(), error)
                log.exception("request.failed", request_id=incoming.identity.id)
                with suppress(BusError):  # its lease will run out by itself
                    await self._bus.requests.release([incoming.delivery])

    async def _renew(self) -> None:
        if self._running:
            await self._bus.requests.renew(list(self._running.values()))

    async def _keep_house(self) -> None:
        await self._bus.ping()
        await self._bus.requests.trim()
        if self._recorder:
            await self._bus.results.trim()

    async def _drain(self) -> bool:
        """Wait for what was started; returns whether it ended in time."""
        if not self._running:
            return True
        log.info("worker.draining", running=len(self._running))
        seconds = self._settings.worker.shutdown_timeout_seconds
        _, left = await asyncio.wait(self._running, timeout=seconds)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return not left

    @property
    def in_flight(self) -> int:
        """Return how many requests it works on."""
        return len(self._running)

    @property
    def probes(self) -> Mapping[str, Probe]:
        """Return what it can't work without, each with a way to try it."""
        reads = partial(self._history.recent, PROBED_OWNER, max_rows=1)
        return {"bus": self._bus.ping, "store": reads}

    @property
    def _free(self) -> int:
        return self._settings.worker.concurrency - len(self._running)

    def _show_life(self) -> None:
        """Let probes see that requests are still being read."""
        self.pulse.beat()
        if self._settings.worker.heartbeat_file:
            self._settings.worker.heartbeat_file.touch()


async def _leave(inbox: Inbox) -> None:
    """Say goodbye, each inbox by itself; the bus forgets a worker that can't."""
    with suppress(BusError):
        await inbox.leave()
