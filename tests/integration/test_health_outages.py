"""The health that a worker reports while its server is away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from service.app import open_bus, open_observed_worker
from service.config.endpoints import HealthSettings
from service.config.settings import BusSettings, Settings
from service.ports.bus import Bus
from service.wire.protocol import Topics
from tests.integration.conftest import StartServer
from tests.integration.test_closed_servers import Change, empty, fill, follow, lead
from tests.probing import Measured, asked, measured

pytestmark = pytest.mark.integration

REQUEST = b'{"owner_key":"ana","content":{"current_input":"Hello"}}'


async def test_a_worker_outlives_its_server(server: StartServer) -> None:
    """It is alive all the time, not ready meanwhile, and counts that its channel was lost."""
    real = server()
    async with observed(real.url) as (bus, address):
        await ready(address, 200)
        await bus.submit(REQUEST)
        await counted(address, lambda now: now("build_requests_total", "success") == 1)
        real.stop()
        await ready(address, 503)
        assert (await asked(f"{address}/livez"))[0] == 200
        away = await measured(address)
        real.start()
        await ready(address, 200)
        await bus.submit(REQUEST.replace(b"Hello", b"Again"))
        await counted(address, lambda now: now("build_requests_total", "success") == 2)
        await counted(address, lambda now: now("bus_resubscribes_total") >= 1)
        back = await measured(address)

    assert "contextbuilder_stream_lag_messages" not in away.names
    assert back("stream_lag_messages", "requests") == 0


@pytest.mark.parametrize(("close", "reopen"), [(fill, empty), (follow, lead)])
async def test_a_worker_whose_server_takes_no_writes_is_not_ready(
    server: StartServer, close: Change, reopen: Change
) -> None:
    """A ping is answered all the time; the worker sees it by its own loops, and stays alive."""
    real = server()
    async with observed(real.url) as (_, address):
        with real.client() as client:
            await ready(address, 200)
            with client.pipeline(transaction=True) as at_once:
                at_once.xadd(Topics.CONTEXT_BUILD_REQUEST, {"data": REQUEST})
                close(real, at_once)
                at_once.execute()
            await ready(address, 503)
            _, reported = await asked(f"{address}/readyz")
            assert (await asked(f"{address}/livez"))[0] == 200
            reopen(real, client)
            await ready(address, 200)
            await counted(address, lambda now: now("build_requests_total", "success") == 1)

    assert reported["checks"][:2] == [
        {"name": "worker", "ok": False, "detail": "held up"},
        {"name": "bus", "ok": True, "detail": "answers"},
    ]


@asynccontextmanager
async def observed(url: str) -> AsyncIterator[tuple[Bus, str]]:
    """Run a worker on a server; gives its bus, and where it can be asked how it is."""
    settings = Settings(bus=BusSettings.model_validate({"url": url}), health=HealthSettings(port=0))
    stop = asyncio.Event()
    with capture_logs() as logs:
        async with (
            open_bus(settings) as connected,
            open_observed_worker(settings, connected.bus) as worker,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(worker.run(stop))
            (address,) = (each["address"] for each in logs if each["event"] == "health.listening")
            yield connected.bus, address
            stop.set()


async def ready(address: str, status: int) -> None:
    """Wait until a worker is ready, or is not."""
    async with asyncio.timeout(60):
        while (await asked(f"{address}/readyz"))[0] != status:  # noqa: ASYNC110 - as a probe does
            await asyncio.sleep(0.05)


async def counted(address: str, holds: Callable[[Measured], bool]) -> None:
    """Wait until something holds of a worker's metrics."""
    async with asyncio.timeout(60):
        while not holds(await measured(address)):  # noqa: ASYNC110 - as a collector does
            await asyncio.sleep(0.05)
