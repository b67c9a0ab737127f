"""How a worker is: its pulse, and what its checks find."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from service.errors import BusError
from service.observe import readiness
from service.observe.readiness import CHECK_SECONDS, Readiness, stuck_after
from service.worker.runner import FAILURES, Pulse
from service.worker.sender import MAX_ATTEMPTS


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Needed:
    """Something that a worker needs, which answers, fails or keeps silent; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: Callable[[], Awaitable[object]] = self.well

    async def __call__(self) -> object:
        """Be asked."""
        self.calls += 1
        return await self.answer()

    async def well(self) -> None:
        """Answer."""

    async def away(self) -> None:
        """Fail."""
        raise BusError("connect to redis://ana:hidden@host: refused")


@pytest.fixture
def clock() -> Hands:
    """Give a clock."""
    return Hands()


@pytest.fixture
def pulse(clock: Hands) -> Pulse:
    """Give the pulse of a worker that has not begun."""
    return Pulse(clock)


def test_a_loop_that_does_not_go_round_is_stuck(clock: Hands, pulse: Pulse) -> None:
    """From the moment on at which patience runs out, until the next beat."""
    pulse.begin(asyncio.Event())
    clock.now += 30
    assert pulse.alive(30)
    clock.now += 1
    assert not pulse.alive(30)
    assert pulse.silent_seconds == 31
    pulse.beat()
    assert pulse.alive(30)


def test_a_worker_that_was_stopped_needs_no_pulse(clock: Hands, pulse: Pulse) -> None:
    """It finishes its work, for as long as that may take, and reads no more."""
    stop = asyncio.Event()
    pulse.begin(stop)
    stop.set()
    clock.now += 1_000

    assert pulse.alive(30)


def test_the_state_follows_the_worker(pulse: Pulse) -> None:
    """It takes requests between its start and the signal to stop."""
    stop = asyncio.Event()
    states = [pulse.state]
    pulse.begin(stop)
    states.append(pulse.state)
    stop.set()

    assert [*states, pulse.state] == ["starting", "taking requests", "stopping"]


def test_a_loop_that_fails_again_and_again_holds_the_worker_up(pulse: Pulse) -> None:
    """A bad answer doesn't, which is given up; one loop that goes on is not all of them."""
    pulse.begin(asyncio.Event())
    for _ in range(MAX_ATTEMPTS):
        pulse.failed("sender")
    assert pulse.state == "taking requests"
    for loop in ("requests", "sender"):
        for _ in range(FAILURES):
            pulse.failed(loop)
    states = []
    for loop in ("requests", "sender"):
        states.append(pulse.state)
        pulse.resumed(loop)
    assert [*states, pulse.state] == ["held up", "held up", "taking requests"]
    assert pulse.alive(30)


@pytest.mark.parametrize(
    ("lease", "timeout", "seconds"), [(5, 5, 30), (20, 5, 120), (1.5, 5, 30), (1.5, 1, 9)]
)
def test_patience_outlasts_an_outage(lease: float, timeout: float, seconds: float) -> None:
    """A bus that is away holds up the loop for several timeouts, however short the lease."""
    assert stuck_after(lease, timeout) == seconds


async def test_all_checks_are_listed(clock: Hands, pulse: Pulse) -> None:
    """The worker's own state first; one that fails does not hide the others."""
    bus, store = Needed(), Needed()
    bus.answer = bus.away
    pulse.begin(asyncio.Event())
    with capture_logs():
        found = await Readiness(lambda: pulse.state, {"bus": bus, "store": store}, clock).checks()

    assert [(check.name, check.ok, check.detail) for check in found] == [
        ("worker", True, "taking requests"),
        ("bus", False, "cannot be used"),
        ("store", True, "answers"),
    ]


async def test_what_does_not_answer_is_not_waited_for(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe gets its answer before it gives up itself."""
    monkeypatch.setattr(readiness, "CHECK_SECONDS", 0.01)
    bus = Needed()
    bus.answer = asyncio.Event().wait
    with capture_logs():
        _, check = await Readiness(lambda: pulse.state, {"bus": bus}).checks()

    assert (check.ok, check.detail) == (False, "no answer within 0.01 s")


async def test_checks_are_not_repeated_within_a_second(clock: Hands, pulse: Pulse) -> None:
    """However many ask, and at the same time; the worker's own state is never an old one."""
    bus, stop = Needed(), asyncio.Event()
    readiness = Readiness(lambda: pulse.state, {"bus": bus}, clock)
    await asyncio.gather(*(readiness.checks() for _ in range(5)))
    pulse.begin(stop)
    assert all(check.ok for check in await readiness.checks())
    stop.set()
    assert [check.ok for check in await readiness.checks()] == [False, True]
    assert bus.calls == 1

    clock.now += CHECK_SECONDS
    await readiness.checks()
    assert bus.calls == 2


async def test_an_outage_is_logged_once(clock: Hands, pulse: Pulse) -> None:
    """When it begins, without what a driver says: that may hold a password."""
    bus = Needed()
    readiness = Readiness(lambda: pulse.state, {"bus": bus}, clock)
    with capture_logs() as logs:
        for answer in (bus.well, bus.away, bus.away, bus.well, bus.away):
            bus.answer = answer
            clock.now += CHECK_SECONDS
            await readiness.checks()

    line = {"event": "health.check_failed", "check": "bus", "reason": "cannot be used"}
    assert logs == [{**line, "log_level": "warning"}] * 2
