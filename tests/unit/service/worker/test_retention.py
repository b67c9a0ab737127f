"""The deletion of what has grown too old, over a store in memory."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from service import app
from service.adapters.memory.bus import open_memory_bus
from service.adapters.memory.store import MemoryHistory
from service.app import make_worker
from service.config.endpoints import StoreSettings
from service.config.settings import EventSettings, Settings
from service.ports.stores import Archiving
from service.worker import retention
from service.worker.retention import Retention
from tests.stores import Words
from tests.support import NOW, MakeBuilder, row


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAUSE", 0)


async def aged(days: Callable[[int], datetime], count: int = 5) -> MemoryHistory:
    """Return a history with rows of n days ago, and a copy of each that is as old."""
    moments = [days(number) for number in range(count)]
    history = MemoryHistory(Words, lambda: moments[0])
    for number, moment in enumerate(moments):
        await history.append("o", [row(number, "human", "x", timestamp=moment.isoformat())])
    for number in reversed(range(count)):
        moments[0] = days(number)
        note = Archiving(reasons={f"m{number}": "older"}, run_id="r", build_id="b")
        await history.flag_fallen("o", [f"m{number}"], archiving=note)
    return history


def ago(days: int) -> datetime:
    """Return the time n days ago."""
    return NOW - timedelta(days=days)


async def left(history: MemoryHistory) -> tuple[int, int]:
    """Return how many rows and copies there are."""
    stats = await history.stats("o")
    return stats.rows, stats.archived


async def test_history_is_kept_for_ever_by_default() -> None:
    """Only copies go, after their ninety days."""
    history = await aged(lambda number: ago(number * 60))
    await Retention(history, Settings(), lambda: NOW).enforce()
    assert await left(history) == (5, 2)


async def test_each_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go by their time, copies by that of their archiving; all of them, in portions."""
    monkeypatch.setattr(retention, "BATCH", 2)
    history = await aged(ago, count=9)
    settings = Settings(
        store=StoreSettings(retention_days=4.5),
        events=EventSettings(archive=True, retention_days=2.5),
    )
    with capture_logs() as logs:
        await Retention(history, settings, lambda: NOW).enforce()
        await Retention(history, settings, lambda: NOW).enforce()

    assert await left(history) == (5, 3)
    reported = [each for each in logs if each["event"] == "retention.deleted"]
    assert [(each["rows"], each["copies"]) for each in reported] == [(4, 6)]


async def test_an_archive_that_is_off_is_checked_once_a_day() -> None:
    """Copies from before still expire; most passes don't touch the archive."""
    history, checks, now = await aged(ago), [0], NOW
    expire_archive = history.expire_archive

    async def counted(before: datetime, limit: int) -> int:
        checks[0] += 1
        return await expire_archive(before, limit)

    history.expire_archive = counted  # type: ignore[method-assign] # a spy
    retention_of_copies = Retention(
        history, Settings(events=EventSettings(retention_days=4)), lambda: now
    )
    for _ in range(3):
        await retention_of_copies.enforce()
    assert (checks, (await history.stats("o")).archived) == ([1], 5)
    now += timedelta(days=1)
    await retention_of_copies.enforce()
    assert (checks, (await history.stats("o")).archived) == ([3], 4)


async def test_several_do_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is deleted that must stay, and nothing fails."""
    monkeypatch.setattr(retention, "BATCH", 1)
    history = await aged(ago, count=40)
    settings = Settings(store=StoreSettings(retention_days=9.5))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(Retention(history, settings, lambda: NOW).enforce())
    assert await left(history) == (10, 40)


async def test_workers_do_it_in_the_background(
    make_builder: MakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time of the bus, while they work."""
    monkeypatch.setattr(app, "INTERVAL", 0.01)
    builder = make_builder(settings=Settings(store=StoreSettings(retention_days=1)))
    async with open_memory_bus() as bus:
        moments = [bus.now() - timedelta(days=2), bus.now()]
        rows = [row(n, "human", "x", timestamp=m.isoformat()) for n, m in enumerate(moments)]
        await builder.history.append("o", rows)
        stop = asyncio.Event()
        running = asyncio.create_task(make_worker(bus, builder).run(stop))
        async with asyncio.timeout(60):
            while (await builder.history.recent("o")).total == 2:  # noqa: ASYNC110 - in the background
                await asyncio.sleep(0.01)
        stop.set()
        await running

    assert [each["id"] for each in (await builder.history.recent("o")).rows] == ["m1"]
