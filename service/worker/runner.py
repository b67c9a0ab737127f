"""The worker: takes deliveries while it has free slots, renews their leases, drains on shutdown.

Its loops go on through outages of the bus and the store, and a `Pulse` records their progress.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic, thread_time
from typing import Any, Final

import structlog

from service.aio import LARGE_TEXT, Admission, raise_if_cancelled
from service.build.after_answer import AfterAnswer
from service.config.settings import Settings
from service.errors import BusError, StoreError
from service.observe.readiness import Probe
from service.observe.tracing import current_span, record_failure, with_caller_trace
from service.ports.bus import Bus, Delivery
from service.wire.response import StoredResult
from service.worker.handler import Handler, Incoming
from service.worker.spans import BusSpans

log = structlog.get_logger(__name__)

#: Seconds that a read waits for requests; a worker notices a shutdown within it.
WAIT: Final = 0.5
#: Requests that wait longer than this are taken by owner, in turns.
LATE: Final = timedelta(seconds=0.05)
#: Seconds between looks for others' requests, while owners with many have their share of slots.
POLL: Final = 0.01
#: How long an eighth of the slots may be enough for owners with many requests, after a request of
#: another one; then it is half of them.
YIELD: Final = timedelta(seconds=2)
#: Seconds of CPU that a pass of the event loop takes if it is busy.
BUSY: Final = 0.0003
#: Seconds between two rounds of trimming the streams and synchronizing with the bus's clock.
HOUSEKEEPING: Final = 5.0
#: Seconds before the first retry, and the limit of the doubled delays after it.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
#: Limit of the distinct errors that one outage logs.
MAX_ERRORS: Final = 20
#: A loop with this many failures in a row is held up; one more than the sender's attempts.
FAILURES: Final = 4


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """Answers the requests of a bus, several at a time; `service.app.make_worker` assembles it."""

    bus: Bus
    settings: Settings
    handler: Handler
    #: None if no spans are collected.
    spans: BusSpans | None
    #: Limits the bytes of large requests in work.
    admission: Admission
    #: The progress and the failures of loops, for health checks.
    pulse: "Pulse"
    #: The servers that the worker depends on, each with a check.
    probes: Mapping[str, Probe]
    #: Tasks that run next to the requests until the worker has drained.
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]]
    #: Work on builds after their answers; it runs in the background, and is drained last.
    after_answer: Sequence[AfterAnswer]
    _running: dict[asyncio.Task[None], Delivery] = field(init=False, default_factory=dict)
    #: Held from the check for free slots until they are taken.
    _taking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    #: Whether the last requests have waited long, and more may.
    _late: bool = field(init=False, default=False)
    #: Slots for owners with many requests.
    _share: int = field(init=False, default=0)
    #: Whether the heartbeat file could not be touched; this is logged once.
    _heartbeat_failed: bool = field(init=False, default=False)
    #: When such an owner last had to make room for others.
    _yielded_at: datetime = field(init=False, default=datetime.min.replace(tzinfo=UTC))

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
            if self.settings.store.url.get_secret_value().startswith("memory:"):
                log.warning("store.in_memory", reason="history ends with the worker: set store.url")
            await repeat_with_backoff("requests", self._take_new, stop, self.pulse)
            drained = await self._drain()
            for work in self.after_answer:
                await work.drain()
            for task in background:
                task.cancel()
        for inbox in (self.bus.requests, self.bus.recalls, self.bus.results):
            with suppress(BusError):  # the bus forgets a worker that can't leave
                await inbox.leave()
        log.info("worker.stopped", drained=drained)
        return drained

    async def _take_new(self) -> None:
        self._beat()
        if not await self._has_free_slot():
            return
        async with self._taking:
            await self._start(await self._receive())

    async def _receive(self) -> Sequence[Delivery]:
        """Receive new requests; if others wait as well, those of each owner in turn."""
        requests, free = self.bus.requests, self._free
        if not (self._late or requests.crowded):
            deliveries = await requests.receive(free, wait=WAIT)
            if deliveries and len(deliveries) == free:
                self._late = self.bus.now() - deliveries[0].received_at > LATE
            if self._late:
                self._yield_slots()
            return deliveries
        self._late = False
        await self._adjust_share()
        heavy = sum(each.behind is not None for each in self._running.values())
        deliveries = await requests.receive_fairly(free, heavy=self._share - heavy)
        if any(each.behind is None for each in deliveries):
            self._yield_slots()
        if self._running and requests.crowded and not deliveries:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED, timeout=POLL)
        return deliveries

    def _yield_slots(self) -> None:
        self._share, self._yielded_at = 0, self.bus.now()

    async def _adjust_share(self) -> None:
        """Set the slots for owners with many requests: more while the event loop isn't busy.

        If it is, more builds at the same time wouldn't end sooner, but delay those of others.
        """
        began = thread_time()
        await asyncio.sleep(0)
        share = self._share // 2 if thread_time() - began > BUSY else self._share + 1
        slots = self.settings.worker.concurrency
        least = slots // 8 if self.bus.now() - self._yielded_at < YIELD else slots // 2
        self._share = max(1, least, min(share, slots))

    async def _claim(self, stop: asyncio.Event) -> None:
        """Claim the deliveries of dead workers before any new ones, since they waited longest.

        One at a time, and none during the last attempt of another: if that request kills its
        workers, the requests handled with it get their own last attempt without it.
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
        """Start the requests of a batch; large ones are read when they are admitted."""
        small = []
        for delivery in deliveries:
            if len(delivery.payload) < LARGE_TEXT:
                small.append(delivery)
            else:
                self._start_task(delivery, self._handle_large(delivery))
        for request, result in await self._read(small):
            self._start_task(request.delivery, self._handle(request, result))

    def _start_task(self, delivery: Delivery, handling: Coroutine[Any, Any, None]) -> None:
        """Start a task that renews the lease of a delivery and takes a slot until it ends."""
        # no task group: `_drain` waits for these tasks, and they raise nothing
        task = asyncio.create_task(handling)
        self._running[task] = delivery
        task.add_done_callback(self._running.pop)

    async def _read(
        self, deliveries: Sequence[Delivery]
    ) -> Iterable[tuple[Incoming, StoredResult | None]]:
        """Decode deliveries, and find the stored answer of each."""
        if not deliveries:
            return ()
        received_at = time.time_ns()
        incoming = await self.handler.read(deliveries)
        results = await self.bus.find_results([request.identity for request in incoming])
        if self.spans and incoming:
            envelopes = [request.envelope for request in incoming]
            self.spans.record_receipt(incoming[0].delivery.source, envelopes, received_at)
        return zip(incoming, results, strict=True)

    async def _handle_large(self, delivery: Delivery) -> None:
        """Handle a delivery once it is admitted; until then only its payload is in memory."""
        async with self.admission.admit(len(delivery.payload)):
            with suppress(BusError):  # without it, the lease expires
                for request, result in await self._read([delivery]):
                    await self._handle(request, result)

    async def _handle(self, incoming: Incoming, result: StoredResult | None) -> None:
        if self.spans:
            span = self.spans.process_span(incoming.delivery, incoming.envelope)
        else:
            span = with_caller_trace(incoming.envelope.metadata.traceparent)
        with span:
            try:
                await self.handler.handle(incoming, result)
            except Exception as error:  # no error of a request may end the worker
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
        seconds, began = self.settings.worker.shutdown_timeout_seconds, monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._taking:  # a claim may be about to start one
                pass
        if not self._running:
            return True
        log.info("worker.draining", running=len(self._running))
        left = max(seconds - (monotonic() - began), 0)
        _, pending = await asyncio.wait(self._running, timeout=left)
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
        """Return the free slots; some large requests may wait without one, so that others go on."""
        slots = self.settings.worker.concurrency
        return slots - len(self._running) + min(self.admission.waiting, slots // 2)

    def _beat(self) -> None:
        """Record that requests are still being read."""
        self.pulse.beat()
        if self.settings.worker.heartbeat_file:
            self._touch(self.settings.worker.heartbeat_file)

    def _touch(self, heartbeat_file: Path) -> None:
        """Touch a file. If that fails, its age shows it to the probe, and the worker goes on."""
        try:
            heartbeat_file.touch()
        except OSError as error:
            if not self._heartbeat_failed:
                log.warning("worker.heartbeat_failed", error=str(error))
            self._heartbeat_failed = True
        else:
            self._heartbeat_failed = False


class Pulse:
    """The progress of the loop that reads requests; and failures of this, sending and ingress."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._stop: asyncio.Event | None = None
        #: Consecutive failures by loop.
        self._failing: Counter[str] = Counter()

    def begin(self, stop: asyncio.Event) -> None:
        """Take requests from now on, until ``stop`` is set."""
        self._stop = stop
        self.beat()

    def beat(self) -> None:
        """Record an iteration of the loop."""
        self._last = self._clock()

    def failed(self, loop: str) -> None:
        """Record a failure of the bus or a store in a loop."""
        self._failing[loop] += 1

    def resumed(self, loop: str) -> None:
        """Record the recovery of a loop."""
        del self._failing[loop]

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the last beat."""
        return self._clock() - self._last

    @property
    def state(self) -> str:
        """Return ``starting``, ``taking requests``, ``held up`` or ``stopping``."""
        if self._stop is None:
            return "starting"
        if self._stop.is_set():
            return "stopping"
        held_up = any(times >= FAILURES for times in self._failing.values())
        return "held up" if held_up else "taking requests"

    def alive(self, stuck_after: float) -> bool:
        """Return whether the loop makes progress, or is stopping."""
        return self.state == "stopping" or self.silent_seconds <= stuck_after


async def repeat_with_backoff(
    name: str,
    step: Callable[[], Awaitable[object]],
    stop: asyncio.Event | None = None,
    pulse: Pulse | None = None,
) -> None:
    """Repeat a step until ``stop`` is set; back off while the bus or a store fails.

    ``pulse`` is notified of each failure and of the recovery.
    """
    stop, pulse = stop or asyncio.Event(), pulse or Pulse()
    pause = FIRST_PAUSE
    logged: set[str] = set()
    while not stop.is_set():
        try:
            await step()
        except (BusError, StoreError) as error:
            if error.detail not in logged and len(logged) < MAX_ERRORS:
                log.warning("loop.interrupted", loop=name, error=error.detail)
                logged.add(error.detail)
            pulse.failed(name)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            if logged:
                log.info("loop.resumed", loop=name)
                pulse.resumed(name)
            logged.clear()
            pause = FIRST_PAUSE
        raise_if_cancelled()
        await asyncio.sleep(0)  # a step that never waits must not starve the others


async def every(seconds: float, name: str, step: Callable[[], Awaitable[object]]) -> None:
    """Repeat a step at an interval, until cancelled."""

    async def delayed_step() -> None:
        await asyncio.sleep(seconds)
        await step()

    await repeat_with_backoff(name, delayed_step)
