"""The composition root: open everything, hand it on, close it in reverse.

Nothing else knows an adapter.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from service.adapters import BUSES, STORES, SUMMARIZERS
from service.adapters.bus_options import bus_options
from service.adapters.embedded.server import embedded_server, find_server
from service.adapters.memory.hub import MemoryManifests
from service.adapters.model_table import load_models
from service.adapters.prompts.watched import WatchedPrompts
from service.adapters.stores import Stores
from service.adapters.summarizers.breaker import CircuitBreaker
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.adapters.tools.sources import find_sources
from service.budget.groups import Strategy
from service.budget.limits import Models, ModelTable
from service.budget.strategies.summarization import Summarization
from service.builder import ContextBuilder
from service.bus import Bus, Events
from service.client import ContextClient, open_client
from service.compaction.compactor import Compactor, running
from service.compaction.making import Maker
from service.config.settings import Settings
from service.errors import ConfigError
from service.events import BusEvents
from service.filing import Filing
from service.gather import Sources
from service.logs import keep_to_stderr
from service.metrics import UNMEASURED, Metrics
from service.plan import limits_of
from service.plugins import load_strategies
from service.ports import Prompts, Summarizer, TokenCounter, ToolSource
from service.worker import Worker

log = structlog.get_logger()

T = TypeVar("T")


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


@asynccontextmanager
async def open_builder(
    settings: Settings | None = None,
    *,
    summarizer: Summarizer | None = None,
    events: Events | None = None,
    metrics: Metrics = UNMEASURED,
) -> AsyncIterator[ContextBuilder]:
    """Open a builder for use in this process, without a bus; its store is in memory by default.

    In the background it makes the summaries that its builds need, with the configured summarizer
    unless one is given, and tells of them where it may.

    Raises:
        ConfigError: There is no such strategy, or no adapter knows the store's URL.
        PromptError: A prompt file is missing or can't be used.
        StoreError: The store can't be opened.
        ToolError: A tool file is wrong.
    """
    keep_to_stderr()
    settings = settings or Settings()
    strategies = check_strategy(settings)
    tokenizers, models = TiktokenTokenizers(), open_models().models
    await asyncio.to_thread(tokenizers.load, *_used_by_default(settings, models))
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings, tokenizers))
        sources = Sources(
            history=stores.history,
            profiles=stores.profiles,
            tools=open_registry(settings),
            prompts=await asyncio.to_thread(open_prompts, settings, metrics),
            summaries=stores.summaries,
        )
        compactor = None
        if settings.summaries.enabled:
            if summarizer is None:
                counter = tokenizers.counter(settings.budget.tokenizer)
                summarizer = await stack.enter_async_context(open_summarizer(settings, counter))
            maker = Maker(
                history=stores.history,
                summaries=stores.summaries,
                summarizer=summarizer,
                tokenizers=tokenizers,
                clock=now,
                settings=settings.summaries,
            )
            compactor = await stack.enter_async_context(
                running(Compactor(maker, sources.lacking, events, metrics))
            )
        yield ContextBuilder(
            sources=sources,
            tokenizers=tokenizers,
            clock=now,
            settings=settings,
            strategies=strategies,
            models=models,
            metrics=metrics,
            filing=Filing(MemoryManifests(), settings),
            compactor=compactor,
        )


def _used_by_default(settings: Settings, models: Models) -> set[str]:
    """Return the tokenizers of requests that name no model, and of rows that are stored."""
    model = settings.budget.model
    limits = limits_of(model, models, settings.budget) if model else None
    return {settings.budget.tokenizer} | ({limits.counter} if limits else set())


def check_strategy(settings: Settings) -> Mapping[str, Strategy]:
    """Return the strategies there are; raises `ConfigError` unless the configured one is there."""
    shares = settings.summaries
    summarization = Summarization(
        summary_budget_ratio=shares.summary_budget_ratio, trigger_ratio=shares.trigger_ratio
    )
    strategies = {**load_strategies(), summarization.name: summarization}
    name = settings.budget.strategy
    if name not in strategies:
        known = ", ".join(sorted(strategies))
        raise ConfigError(f"budget.strategy: {name!r} is no strategy; there are {known}")
    return strategies


@asynccontextmanager
async def open_stores(
    settings: Settings, tokenizers: TiktokenTokenizers | None = None
) -> AsyncIterator[Stores]:
    """Open the configured store; raises `ConfigError` or `StoreError`."""
    counter = (tokenizers or TiktokenTokenizers()).counter(settings.budget.tokenizer)
    url = settings.store.url.get_secret_value()
    async with _by_scheme(STORES, url, "store.url")(settings.store, counter, now) as stores:
        yield stores


@asynccontextmanager
async def open_summarizer(settings: Settings, counter: TokenCounter) -> AsyncIterator[Summarizer]:
    """Open the configured summarizer; raises `ConfigError` where what it needs is not installed."""
    chosen = settings.summaries.summarizer
    async with SUMMARIZERS[chosen.kind](chosen, counter) as summarizer:
        yield CircuitBreaker(
            summarizer,
            time.monotonic,
            failures=chosen.breaker_failures,
            open_seconds=chosen.breaker_seconds,
        )


def open_registry(settings: Settings) -> InMemoryToolRegistry:
    """Load the configured tools; raises `ToolError` with the place of what is wrong."""
    registry = InMemoryToolRegistry()
    for source in tool_sources(settings):
        for definition in source.read():
            registry.register(definition)
    return registry


def open_prompts(settings: Settings, metrics: Metrics = UNMEASURED) -> Prompts:
    """Read the configured texts; raises `PromptError` with the path of what is wrong."""
    return WatchedPrompts(settings.prompts, metrics)


def tool_sources(settings: Settings) -> list[ToolSource]:
    """Return where the configured tools are, files before modules; none is read yet."""
    return find_sources(settings.tools.paths, settings.tools.modules)


def open_models() -> ModelTable:
    """Read the table of models that comes with the service."""
    return load_models()


def open_counter(settings: Settings) -> TokenCounter:
    """Load the configured tokenizer; takes up to half a second of CPU."""
    return TiktokenTokenizers().counter(settings.budget.tokenizer)


async def upgrade_store(settings: Settings) -> None:
    """Bring the configured store to the newest schema; raises `StoreError`."""
    from service.adapters.sql.migrate import upgrade  # noqa: PLC0415 - only databases need it

    await upgrade(settings.store.url.get_secret_value(), settings.store)


async def store_revision(settings: Settings) -> str | None:
    """Return the revision of the store's schema, None where it has none; raises `StoreError`."""
    from service.adapters.sql.migrate import current  # noqa: PLC0415 - only databases need it

    return await current(settings.store.url.get_secret_value(), settings.store)


async def check_store(settings: Settings) -> str:
    """Return the revision of the store's schema; raises `SchemaError` if it is not ours."""
    from service.adapters.sql.migrate import check  # noqa: PLC0415 - only databases need it

    return await check(settings.store.url.get_secret_value(), settings.store)


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
        opened = _by_scheme(BUSES, url, "bus.url")(url, bus_options(settings))
        bus = await stack.enter_async_context(opened)
        yield ConnectedBus(bus=bus, url=None if url.startswith("memory") else url, origin=origin)


@asynccontextmanager
async def open_worker(
    settings: Settings, bus: Bus, metrics: Metrics = UNMEASURED
) -> AsyncIterator[Worker]:
    """Open a worker on a bus; raises as `open_builder` does."""
    async with open_builder(settings, events=BusEvents(bus, metrics), metrics=metrics) as builder:
        yield Worker(bus, builder)


@asynccontextmanager
async def open_observed_worker(settings: Settings, bus: Bus) -> AsyncIterator[Worker]:
    """Open a worker that tells over HTTP how it is; raises `ConfigError` if the port is taken."""
    if (port := settings.health.port) is None:
        async with open_worker(settings, bus) as worker:
            yield worker
        return
    from service.adapters.health.opening import open_health  # noqa: PLC0415 - only here is it needed
    from service.adapters.health.prometheus import PrometheusMetrics  # noqa: PLC0415 - likewise

    metrics = PrometheusMetrics(settings.store.url.get_secret_value().partition(":")[0])
    async with (
        open_worker(settings, bus, metrics) as worker,
        open_health(settings, port, bus, worker, metrics),
    ):
        yield worker


@asynccontextmanager
async def connect_client(settings: Settings, bus: Bus) -> AsyncIterator[ContextClient]:
    """Open a client on a bus; raises `ConfigError` where the settings allow no replies."""
    prefixes = settings.bus.reply_prefixes
    if not prefixes:
        raise ConfigError("bus.reply_prefixes: a client needs one, for the channel of its replies")
    async with open_client(bus, reply_prefix=prefixes[0]) as client:
        yield client


async def _bus_url(settings: Settings, stack: AsyncExitStack) -> tuple[str, str]:
    if settings.bus.url is not None:
        return settings.bus.url.get_secret_value(), "bus.url"
    server = find_server()
    if server is None:
        log.warning("bus.in_memory", reason="no server to embed was found")
        return "memory://", "memory of this process"
    return await stack.enter_async_context(embedded_server(binary=server)), server.origin


def _by_scheme(table: Mapping[str, T], url: str, setting: str) -> T:
    scheme = url.partition(":")[0]
    if scheme not in table:
        raise ConfigError(f"{setting}: {scheme!r} is not known; {', '.join(sorted(table))} are")
    return table[scheme]
