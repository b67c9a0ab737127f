"""The composition root: open everything, hand it on, close it in reverse.

Nothing but this, `service.connect` and `service.connect` knows an adapter.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from opentelemetry.trace import Tracer

from service.adapters.memory.hub import MemoryReports
from service.adapters.store_records import Stores
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.opening import open_tools
from service.audit.reports import BuildReports
from service.budget.limits import Models
from service.build.gather import Sources
from service.build.plan import limits_of
from service.build.strategies import check_strategy
from service.builder import ContextBuilder
from service.compaction.compactor import Compactor, running
from service.compaction.summarize import Maker
from service.config.settings import Settings
from service.connect import (
    ConnectedBus,
    connect_client,
    now,
    open_bus,
    open_models,
    open_prompts,
    open_stores,
    open_summarizer,
    open_tracer,
)
from service.observe.logs import keep_to_stderr
from service.observe.metrics import UNMEASURED, Metrics
from service.observe.tracing import find_tracer
from service.ports.bus import Bus
from service.ports.services import Summarizer
from service.wire.events import Events
from service.worker.events import BusEvents
from service.worker.runner import Worker

#: What a program needs that embeds the service or talks to it.
__all__ = [
    "ConnectedBus",
    "connect_client",
    "open_builder",
    "open_bus",
    "open_observed_worker",
    "open_worker",
]


@asynccontextmanager
async def open_builder(
    settings: Settings | None = None,
    *,
    summarizer: Summarizer | None = None,
    events: Events | None = None,
    metrics: Metrics = UNMEASURED,
    tracer: Tracer | None = None,
) -> AsyncIterator[ContextBuilder]:
    """Open a builder for use in this process, without a bus; its store is in memory by default.

    Without a ``tracer``, the spans of its builds go to the process's provider, if it has one. In
    the background it makes the summaries that its builds need, with the configured summarizer
    unless one is given, and tells of them where it may.

    Raises:
        ConfigError: There is no such strategy, no adapter knows the store's URL, or an extra that
            the settings need isn't installed.
        PromptError: A prompt file is missing or can't be used.
        StoreError: The store can't be opened.
        ToolError: A tool file is wrong.
    """
    keep_to_stderr()
    settings = settings or Settings()
    strategies, tracer = check_strategy(settings), tracer or find_tracer()
    tokenizers, models = TiktokenTokenizers(), open_models().models
    await asyncio.to_thread(tokenizers.load, *_used_by_default(settings, models))
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings, tokenizers))
        sources = Sources(
            history=stores.history,
            profiles=stores.profiles,
            tools=await stack.enter_async_context(open_tools(settings.tools, metrics)),
            prompts=await asyncio.to_thread(open_prompts, settings, metrics),
            summaries=stores.summaries,
        )
        compactor = None
        if settings.summaries.enabled:
            opened = _open_maker(settings, stores, tokenizers, summarizer)
            maker = await stack.enter_async_context(opened)
            making = Compactor(maker, sources.lacking, events, metrics, tracer)
            compactor = await stack.enter_async_context(running(making))
        yield ContextBuilder(
            sources=sources,
            tokenizers=tokenizers,
            clock=now,
            settings=settings,
            strategies=strategies,
            models=models,
            metrics=metrics,
            tracer=tracer,
            reports=BuildReports(MemoryReports(), settings, now),
            compactor=compactor,
        )


@asynccontextmanager
async def _open_maker(
    settings: Settings,
    stores: Stores,
    tokenizers: TiktokenTokenizers,
    summarizer: Summarizer | None,
) -> AsyncIterator[Maker]:
    """Open what makes summaries, with the configured summarizer unless one is given."""
    async with AsyncExitStack() as stack:
        if summarizer is None:
            counter = tokenizers.counter(settings.budget.tokenizer)
            summarizer = await stack.enter_async_context(open_summarizer(settings, counter))
        yield Maker(
            history=stores.history,
            summaries=stores.summaries,
            summarizer=summarizer,
            tokenizers=tokenizers,
            clock=now,
            settings=settings.summaries,
        )


def _used_by_default(settings: Settings, models: Models) -> set[str]:
    """Return the tokenizers of requests that name no model, and of rows that are stored."""
    model = settings.budget.model
    limits = limits_of(model, models, settings.budget) if model else None
    return {settings.budget.tokenizer} | ({limits.counter} if limits else set())


@asynccontextmanager
async def open_worker(
    settings: Settings, bus: Bus, metrics: Metrics = UNMEASURED
) -> AsyncIterator[Worker]:
    """Open a worker on a bus; raises as `open_builder` does."""
    async with open_builder(settings, events=BusEvents(bus, metrics), metrics=metrics) as builder:
        yield Worker(bus, builder)


@asynccontextmanager
async def open_observed_worker(settings: Settings, bus: Bus) -> AsyncIterator[Worker]:
    """Open a worker with what it serves over HTTP; raises `ConfigError` if a port is taken."""
    async with AsyncExitStack() as stack:
        enter, metrics, served = stack.enter_async_context, None, None
        tracer = await enter(open_tracer(settings))
        if settings.health.port is not None:
            from service.http.prometheus import PrometheusMetrics  # noqa: PLC0415 - only here

            metrics = PrometheusMetrics(settings.store.url.get_secret_value().partition(":")[0])
        measured = metrics or UNMEASURED
        events = BusEvents(bus, measured)
        opened = open_builder(settings, events=events, metrics=measured, tracer=tracer)
        builder = await enter(opened)
        if settings.http.port is not None:
            from service.http.app import open_http  # noqa: PLC0415 - likewise

            client = await enter(connect_client(settings, bus, tracer))
            served = await enter(open_http(settings.http.port, bus, builder, client.send))
        worker = Worker(bus, builder, served.recent.add if served else None)
        if metrics and settings.health.port is not None:
            from service.http.health import open_health  # noqa: PLC0415 - likewise

            await enter(open_health(settings, settings.health.port, bus, worker, metrics))
        yield worker
