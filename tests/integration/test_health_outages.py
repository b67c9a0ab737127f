"""What a worker tells of itself while its server is away."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from service.app import open_bus, open_observed_worker
from service.config.health import HealthSettings
from service.config.settings import BusSettings, Settings
from tests.integration.conftest import StartServer
from tests.probing import Measured, asked, measured

pytestmark = pytest.mark.integration

REQUEST = b'{"owner_key":"ana","content":{"current_input":"Hello"}}'


async def test_a_worker_outlives_its_server(server: StartServer) -> None:
    """It is alive all the time, not ready meanwhile, and counts that its channel was lost."""
    real = server()
    settings = Settings(
        bus=BusSettings.model_validate({"url": real.url}), health=HealthSettings(port=0)
    )
    stop = asyncio.Event()
    with capture_logs() as logs:
        async with (
            open_bus(settings) as connected,
            open_observed_worker(settings, connected.bus) as worker,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(worker.run(stop))
            (address,) = (each["address"] for each in logs if each["event"] == "health.listening")
            await ready(address, 200)
            await connected.bus.submit(REQUEST)
            await counted(address, lambda now: now("build_requests_total", "success") == 1)
            real.stop()
            await ready(address, 503)
            assert (await asked(f"{address}/livez"))[0] == 200
            away = await measured(address)
            real.start()
            await ready(address, 200)
            await connected.bus.submit(REQUEST.replace(b"Hello", b"Again"))
            await counted(address, lambda now: now("build_requests_total", "success") == 2)
            await counted(address, lambda now: now("bus_resubscribes_total") >= 1)
            back = await measured(address)
            stop.set()

    assert "contextbuilder_stream_lag_messages" not in away.names
    assert back("stream_lag_messages", "requests") == 0


async def ready(address: str, status: int) -> None:
    """Wait until a worker is ready, or is not."""
    async with asyncio.timeout(20):
        while (await asked(f"{address}/readyz"))[0] != status:  # noqa: ASYNC110 - as a probe does
            await asyncio.sleep(0.05)


async def counted(address: str, holds: Callable[[Measured], bool]) -> None:
    """Wait until something holds of a worker's metrics."""
    async with asyncio.timeout(20):
        while not holds(await measured(address)):  # noqa: ASYNC110 - as a collector does
            await asyncio.sleep(0.05)
