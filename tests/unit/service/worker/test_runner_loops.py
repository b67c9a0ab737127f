import asyncio

import pytest
from structlog.testing import capture_logs

from service.errors import BusError
from service.worker.runner import FAILURES, LONGEST_PAUSE, Pulse, repeat_with_backoff


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the pauses that are made, none of which takes its time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return made


async def run(outcomes: list[str]) -> list[tuple[str, str]]:
    """Run a step that fails with these words, or succeeds where they are empty; return the log."""
    stop = asyncio.Event()

    async def step() -> None:
        said = outcomes.pop(0)
        if not outcomes:
            stop.set()
        if said:
            raise BusError(said)

    with capture_logs() as logged:
        await repeat_with_backoff("name", step, stop)
    return [(line["event"], line.get("error", "")) for line in logged]


async def test_an_outage_is_reported_once(pauses: list[float]) -> None:
    """With its beginning, its end, and each new reason."""
    assert await run(["full", "full", "away", "full", "", "", "full", ""]) == [
        ("loop.interrupted", "full"),
        ("loop.interrupted", "away"),
        ("loop.resumed", ""),
        ("loop.interrupted", "full"),
        ("loop.resumed", ""),
    ]


async def test_the_pulse_learns_of_failures(pauses: list[float]) -> None:
    """Of each, and of their end; the failures of an outage are not those of the next."""
    pulse, stop = Pulse(), asyncio.Event()
    pulse.begin(stop)
    states: list[str] = []
    outcomes = ["away"] * FAILURES + ["", "away"]

    async def step() -> None:
        states.append(pulse.state)
        if len(states) == len(outcomes):
            stop.set()
        if said := outcomes[len(states) - 1]:
            raise BusError(said)

    with capture_logs():
        await repeat_with_backoff("name", step, stop, pulse)
    assert states == ["taking requests"] * FAILURES + ["held up", "taking requests"]


async def test_pauses_grow_until_it_works_again(pauses: list[float]) -> None:
    """From a tenth of a second up to two; a success starts them again."""
    await run(["full"] * 7 + ["", "full", ""])

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, LONGEST_PAUSE, LONGEST_PAUSE, 0.1]
