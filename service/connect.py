"""Open the parts of the service from the settings: bus, stores, tools, prompts, tokenizers."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog
from opentelemetry.trace import Tracer

from service.adapters import BUSES, STORES, SUMMARIZERS, mcp_servers, open_embedded_server
from service.adapters.bus_options import bus_options
from service.adapters.embedded.binaries import find_server
from service.adapters.model_table import load_models
from service.adapters.otel import tracer as otel_tracer
from service.adapters.prompts.watched import WatchedPrompts
from service.adapters.summarizers.breaker import CircuitBreaker
from service.adapters.tokens.encodings import PACKAGED
from service.adapters.tokens.tokenizers import LateCounter, TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.adapters.tools.sources import find_sources, load_registry
from service.budget.limits import ModelTable
from service.config.settings import Settings
from service.errors import ConfigError
from service.observe.metrics import UNMEASURED, Metrics
from service.observe.tracing import find_tracer
from service.ports.bus import Bus
from service.ports.services import Prompts, ServerTools, Summarizer, TokenCounter, ToolSource
from service.ports.status import BusSurvey, StoreState
from service.ports.stores import Stores
from service.worker.client import ContextClient, open_client
from service.worker.telemetry import BusSpans

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedBus:
    """A bus, and where it is."""

    bus: Bus
    #: For other processes to connect to; None for a bus in this process only.
    url: str | None
    #: The origin of the bus, for display.
    origin: str


@asynccontextmanager
async def open_bus(settings: Settings) -> AsyncIterator[ConnectedBus]:
    """Connect to the configured bus; without one, start a server, or else use one in memory.

    Raises:
        BusError: The bus does not answer.
        ConfigError: No adapter supports its URL.
    """
    async with AsyncExitStack() as stack:
        url, origin = await _bus_url(settings, stack)
        opened = by_scheme(BUSES, url, "bus.url")(url, bus_options(settings))
        bus = await stack.enter_async_context(opened)
        yield ConnectedBus(bus=bus, url=None if url.startswith("memory") else url, origin=origin)


async def _bus_url(settings: Settings, stack: AsyncExitStack) -> tuple[str, str]:
    if settings.bus.url is not None:
        return settings.bus.url.get_secret_value(), "bus.url"
    server = find_server()
    if server is None:
        log.warning("bus.in_memory", reason="no server to embed was found")
        return "memory://", "memory of this process"
    return await stack.enter_async_context(open_embedded_server(server)), server.origin


@asynccontextmanager
async def connect_client(
    settings: Settings, bus: Bus, tracer: Tracer | None = None
) -> AsyncIterator[ContextClient]:
    """Open a client on a bus; raises `ConfigError` if the settings allow no replies."""
    prefixes = settings.bus.reply_prefixes
    if not prefixes:
        raise ConfigError("bus.reply_prefixes: a client needs one, for the channel of its replies")
    spans = BusSpans(tracer or find_tracer(), settings.bus)
    async with open_client(bus, reply_prefix=prefixes[0], spans=spans) as client:
        yield client


#: Returns the current time in UTC.
now: Final = partial(datetime.now, UTC)


@asynccontextmanager
async def open_stores(
    settings: Settings, tokenizers: TiktokenTokenizers | None = None
) -> AsyncIterator[Stores]:
    """Open the configured store; raises `ConfigError` or `StoreError`.

    Without ``tokenizers``, the configured one is loaded when the first row is counted, which is
    when it is stored.
    """
    counter: TokenCounter
    if tokenizers is None:
        counter = LateCounter(lambda: open_counter(settings))
    else:
        counter = tokenizers.counter(settings.budget.tokenizer)
    url = settings.store.url.get_secret_value()
    async with by_scheme(STORES, url, "store.url")(settings.store, counter, now) as stores:
        yield stores


@asynccontextmanager
async def open_summarizer(settings: Settings, counter: TokenCounter) -> AsyncIterator[Summarizer]:
    """Open the configured summarizer; raises `ConfigError` if its packages are not installed."""
    chosen = settings.summaries.summarizer
    async with SUMMARIZERS[chosen.kind](chosen, counter) as summarizer:
        yield CircuitBreaker(
            summarizer,
            time.monotonic,
            failures=chosen.breaker_failures,
            open_seconds=chosen.breaker_seconds,
        )


def open_tracer(settings: Settings) -> AbstractAsyncContextManager[Tracer | None]:
    """Open the exporter of spans that the settings and OpenTelemetry's variables configure."""
    return otel_tracer.open_tracer(settings.telemetry)


def open_registry(settings: Settings) -> InMemoryToolRegistry:
    """Load the tools of files and modules; raises `ToolError` with the location of a problem."""
    return load_registry(settings.tools)


async def list_servers(settings: Settings) -> list[ServerTools]:
    """List the tools of the configured servers; raises `ConfigError` without the extra ``mcp``."""
    return await mcp_servers().list(settings.tools) if settings.tools.mcp else []


def open_prompts(settings: Settings, metrics: Metrics = UNMEASURED) -> Prompts:
    """Read the configured prompts; raises `PromptError` with the path of a problem."""
    return WatchedPrompts(settings.prompts, metrics)


def tool_sources(settings: Settings) -> list[ToolSource]:
    """Return the configured sources of tools, files before modules, without reading them."""
    return find_sources(settings.tools.paths, settings.tools.modules)


def open_models() -> ModelTable:
    """Read the table of models that comes with the service."""
    return load_models()


def open_counter(settings: Settings) -> TokenCounter:
    """Load the configured tokenizer; takes up to half a second of CPU."""
    return TiktokenTokenizers().counter(settings.budget.tokenizer)


def load_tokenizers() -> Mapping[str, bool]:
    """Load the packaged tokenizers; return of each whether it counts exactly. A second of CPU."""
    tokenizers = TiktokenTokenizers()
    return {name: tokenizers.counter(name).exact for name in PACKAGED}


def embedded_server_origin() -> str | None:
    """Return the origin of the server that a worker without a bus would start, or None."""
    server = find_server()
    return server.origin if server else None


def store_file(settings: Settings) -> Path | None:
    """Return the file of the store, None if it is a server; raises `StoreError`."""
    from service.adapters.sql.sqlite import sqlite_path  # noqa: PLC0415 - only databases need it

    url = settings.store.url.get_secret_value()
    return sqlite_path(url) if url.startswith("sqlite") else None


async def upgrade_store(settings: Settings) -> None:
    """Upgrade the configured store to the newest schema; raises `StoreError`."""
    from service.adapters.sql.migrate import upgrade  # noqa: PLC0415 - only databases need it

    await upgrade(settings.store.url.get_secret_value(), settings.store)


async def store_revision(settings: Settings) -> str | None:
    """Return the revision of the store's schema, None if it has none; raises `StoreError`."""
    from service.adapters.sql.database_state import read_revision  # noqa: PLC0415 - only databases need it

    return await read_revision(settings.store.url.get_secret_value(), settings.store)


async def check_store(settings: Settings) -> str:
    """Return the revision of the store's schema; raises `SchemaError` unless it is the newest."""
    from service.adapters.sql.migrate import check  # noqa: PLC0415 - only databases need it

    return await check(settings.store.url.get_secret_value(), settings.store)


async def store_state(settings: Settings) -> StoreState | None:
    """Return the size of the store, None if it doesn't exist yet; raises `StoreError`."""
    from service.adapters.sql.database_state import read_size  # noqa: PLC0415 - only databases need it

    return await read_size(settings.store.url.get_secret_value(), settings.store)


@asynccontextmanager
async def open_survey(settings: Settings) -> AsyncIterator[BusSurvey]:
    """Connect to the server of `bus.url` for reading; raises `BusError` or `ConfigError`."""
    from service.adapters.redis.survey import open_redis_survey  # noqa: PLC0415 - likewise

    if settings.bus.url is None:
        raise ConfigError("bus.url: not set, so there is no server to inspect")
    url, prefixes = settings.bus.url.get_secret_value(), settings.bus.reply_prefixes
    async with open_redis_survey(url, bus_options(settings), prefixes) as survey:
        yield survey


async def reindex_store(settings: Settings) -> int:
    """Update the search terms of rows to the current rules; return the number of rows updated."""
    from service.adapters.sql.migrate import reindex  # noqa: PLC0415 - only databases need it

    return await reindex(settings.store.url.get_secret_value(), settings.store)


def by_scheme(table: Mapping[str, T], url: str, setting: str) -> T:
    """Return the entry for a URL's scheme; raises `ConfigError` that names the setting."""
    scheme = url.partition(":")[0]
    if scheme not in table:
        raise ConfigError(f"{setting}: {scheme!r} is unknown; known are {', '.join(sorted(table))}")
    return table[scheme]
