import pytest

from service.adapters.memory.bus import open_memory_bus
from service.errors import ConfigError
from service.ports.bus import RequestStream


async def test_a_bus_in_memory_has_one_stream() -> None:
    """It is shown like those of a server, and can't be divided."""
    async with open_memory_bus() as bus:
        await bus.submit(b"1")
        await bus.submit(b"2")
        await bus.requests.receive(1, wait=0)

        assert await bus.division.count() == 1
        stream = RequestStream(name="context.build.request", entries=2, pending=1)
        assert await bus.division.streams() == [stream]
        await bus.division.divide(1)
        with pytest.raises(ConfigError, match="memory"):
            await bus.division.divide(2)
