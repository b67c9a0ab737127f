"""A worker's process: what it says and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.app import ConnectedBus, open_bus
from service.cli import worker
from service.cli.exits import Exit
from service.config.settings import BusSettings, Settings
from service.ports.bus import Bus

MEMORY = Settings(bus=BusSettings(url="memory://"))


class Stopping:
    """A worker that is told to stop at once, and drains or doesn't."""

    def __init__(self, drained: bool) -> None:
        self.drained = drained

    async def run(self, stop: asyncio.Event) -> bool:
        """Return whether everything was finished."""
        stop.set()
        return self.drained


@pytest.mark.parametrize(("drained", "code"), [(True, Exit.OK), (False, Exit.STOPPED)])
async def test_the_exit_code_tells_whether_it_drained(
    drained: bool, code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that finished its requests ends with 0, another one with 143."""

    @asynccontextmanager
    async def open_worker(_settings: Settings, _bus: Bus) -> AsyncIterator[Stopping]:
        yield Stopping(drained)

    monkeypatch.setattr(worker, "open_observed_worker", open_worker)
    assert await worker.serve(MEMORY) is code


async def _introduced(
    connected_url: str | None, configured: bool, capsys: pytest.CaptureFixture[str]
) -> str:
    async with open_bus(MEMORY) as memory:
        connected = ConnectedBus(bus=memory.bus, url=connected_url, origin="a server here")
        worker._print_bus(connected, configured=configured)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


async def test_a_bus_of_its_own_can_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a server that it started, a worker tells the whole URL."""
    said = await _introduced("redis://default:pw@127.0.0.1:7/0", False, capsys)
    assert "a server here" in said
    assert "redis-cli -u redis://default:pw@127.0.0.1:7/0" in said


async def test_a_configured_bus_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The password of a bus that others run stays out of the log."""
    assert await _introduced("redis://:pw@db:7/0", True, capsys) == "bus: redis://:***@db:7/0\n"


async def test_a_bus_in_memory_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    """It is said where no other process can reach the bus."""
    assert "in the memory of this process" in await _introduced(None, True, capsys)
