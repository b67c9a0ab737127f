"""The bus, and a client on it: opened without what builds contexts, which takes longer to load."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from opentelemetry.trace import Tracer

from service.adapters import BUSES, embedded_server
from service.adapters.bus_options import bus_options
from service.adapters.embedded.binaries import find_server
from service.bus import Bus
from service.bus_spans import BusSpans
from service.client import ContextClient, open_client
from service.config.settings import Settings
from service.errors import ConfigError
from service.parts import by_scheme
from service.tracing import find_tracer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedBus:
    """A bus, and how it was come by."""

    bus: Bus
    #: For other processes to connect to; None for a bus that lives in this one only.
    url: str | None
    #: Where the bus is, for people.
    origin: str


@asynccontextmanager
async def open_bus(settings: Settings) -> AsyncIterator[ConnectedBus]:
    """Connect to the configured bus; without one, start a server, or fall back to one in memory.

    Raises:
        BusError: The bus does not answer.
        ConfigError: No adapter knows its URL.
    """
    async with AsyncExitStack() as stack:
        url, origin = await _bus_url(settings, stack)
        opened = by_scheme(BUSES, url, "bus.url")(url, bus_options(settings))
        bus = await stack.enter_async_context(opened)
        yield ConnectedBus(bus=bus, url=None if url.startswith("memory") else url, origin=origin)


@asynccontextmanager
async def connect_client(
    settings: Settings, bus: Bus, tracer: Tracer | None = None
) -> AsyncIterator[ContextClient]:
    """Open a client on a bus; raises `ConfigError` where the settings allow no replies."""
    prefixes = settings.bus.reply_prefixes
    if not prefixes:
        raise ConfigError("bus.reply_prefixes: a client needs one, for the channel of its replies")
    spans = BusSpans(tracer or find_tracer(), settings.bus)
    async with open_client(bus, reply_prefix=prefixes[0], spans=spans) as client:
        yield client


async def _bus_url(settings: Settings, stack: AsyncExitStack) -> tuple[str, str]:
    if settings.bus.url is not None:
        return settings.bus.url.get_secret_value(), "bus.url"
    server = find_server()
    if server is None:
        log.warning("bus.in_memory", reason="no server to embed was found")
        return "memory://", "memory of this process"
    return await stack.enter_async_context(embedded_server(server)), server.origin
