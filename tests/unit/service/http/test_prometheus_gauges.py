"""What is looked up when somebody asks."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from service.adapters.bus_options import BusOptions
from service.adapters.memory.bus import MemoryBus
from service.adapters.memory.hub import MemoryHub
from service.errors import BusError
from service.http import prometheus
from service.http.prometheus import WorkerGauges
from service.observe.readiness import Check
from service.ports.bus import Delivery, Depth
from tests.probing import Measured


class Waiting:
    """An inbox of which it is known, or not, how much waits."""

    def __init__(self, depth: Depth | None = None, *, hangs: bool = False) -> None:
        self._depth = depth
        self._hangs = hangs

    async def depth(self) -> Depth:
        """Return it, fail, or never answer."""
        if self._hangs:
            await asyncio.Event().wait()
        if self._depth is None:
            raise BusError("away")
        return self._depth


async def looked_up(requests: Waiting, results: Waiting) -> Measured:
    """Return the metrics of a bus with these inboxes and three requests in work."""
    bus = MemoryBus(MemoryHub(), BusOptions())
    bus.requests, bus.results = requests, results  # type: ignore[assignment] # of inboxes, that is all
    registry, seen = CollectorRegistry(auto_describe=True), WorkerGauges(bus, lambda: 3)
    registry.register(seen)
    await seen.refresh([])
    return Measured(generate_latest(registry).decode())


async def test_streams_and_work_in_hand_are_reported() -> None:
    """For both streams, by name."""
    one = Depth(lag=7, pending=2, oldest_pending_seconds=1.5)
    now = await looked_up(Waiting(one), Waiting(Depth(lag=0, pending=0, oldest_pending_seconds=0)))

    assert now("build_in_flight") == 3
    assert now("stream_lag_messages", "requests") == 7
    assert now("stream_pending_messages", "requests") == 2
    assert now("stream_oldest_pending_seconds", "requests") == 1.5
    assert now("stream_lag_messages", "results") == 0


@pytest.mark.parametrize("hangs", [False, True])
async def test_what_is_not_known_is_not_reported(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bus that is away, or a server without a lag, is not taken for an empty stream."""
    monkeypatch.setattr(prometheus, "DEPTH_SECONDS", 0.01)
    one = Depth(lag=None, pending=2, oldest_pending_seconds=1.5)
    now = await looked_up(Waiting(one), Waiting(hangs=hangs))

    assert "contextbuilder_stream_lag_messages" not in now.names
    assert now("stream_pending_messages", "requests") == 2
    assert now("build_in_flight") == 3


async def test_the_bus_in_memory_reports_how_much_waits() -> None:
    """Unread and unsettled entries, and how old the oldest of these is."""
    clock = [0.0]
    bus = MemoryBus(MemoryHub(lambda: clock[0]), BusOptions())
    for payload in (b"1", b"2", b"3"):
        await bus.submit(payload)
    clock[0] = 8
    taken: list[Delivery] = await bus.requests.receive(2, wait=0)
    depth = await bus.requests.depth()

    assert (depth.lag, depth.pending) == (1, 2)
    assert depth.oldest_pending_seconds == pytest.approx(8, abs=0.01)
    await bus.requests.ack(taken)
    assert await bus.requests.depth() == Depth(lag=1, pending=0, oldest_pending_seconds=0)


async def test_checks_are_reported_as_they_were_found() -> None:
    """Each by its name, as 1 or 0; before the first look there are none."""
    registry, seen = (
        CollectorRegistry(auto_describe=True),
        WorkerGauges(MemoryBus(MemoryHub(), BusOptions()), lambda: 0),
    )
    registry.register(seen)
    assert "check_ok{" not in generate_latest(registry).decode()

    checks = [Check("bus", ok=True, detail="answers"), Check("store", ok=False, detail="gone")]
    await seen.refresh(checks)

    now = Measured(generate_latest(registry).decode())
    assert (now("check_ok", "bus"), now("check_ok", "store")) == (1, 0)
