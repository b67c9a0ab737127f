"""The composition root: opens everything, passes it on, closes it in reverse.

Only this module, `service.connect` and `ctxb` import adapters.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from opentelemetry.trace import Tracer

from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.adapters.tools.loading import load_registry, open_tools
from service.adapters.tools.registry import InMemoryToolRegistry
from service.aio import Admission
from service.audit.report_store import BuildReports
from service.budget.limits import Models
from service.build.after_answer import AfterAnswer
from service.build.gather import Sources
from service.build.plan import limits_of
from service.build.plugins import configured_strategies
from service.builder import ContextBuilder
from service.compaction.compactor import Compactor, running_compactor
from service.compaction.summarize import SummaryMaker
from service.config.settings import Settings
from service.connect import (
    ConnectedBus,
    check_extras,
    check_names,
    connect_client,
    now,
    open_bus,
    open_models,
    open_prompts,
    open_similarity,
    open_stores,
    open_summarizer,
    open_tracer,
    require_settings,
)
from service.http.recent_builds import RecentBuilds
from service.observe.logs import keep_to_stderr
from service.observe.metrics import UNMEASURED, Metrics
from service.observe.tracing import find_tracer
from service.ports.bus import Bus
from service.ports.services import Embedder, Summarizer
from service.wire.events import Events
from service.wire.protocol import Topics
from service.worker.event_publisher import EventPublisher
from service.worker.handler import Handler
from service.worker.ingress import Ingress, RecallStream
from service.worker.pace import Paces
from service.worker.pruned_rows import PrunedRows
from service.worker.recorder import Recorder
from service.worker.retention import INTERVAL, Retention
from service.worker.runner import HOUSEKEEPING, Pulse, Worker, every, repeat_with_backoff
from service.worker.sender import Sender
from service.worker.spans import BusSpans

#: Whose history a readiness check reads; it need not exist.
PROBED_OWNER: Final = "ctxb-readiness"

#: The names for programs that embed the service or are clients of it.
__all__ = [
    "ConnectedBus",
    "check_settings",
    "connect_client",
    "make_worker",
    "open_builder",
    "open_bus",
    "open_observed_worker",
    "open_worker",
]


def check_settings(settings: Settings) -> InMemoryToolRegistry:
    """Check what needs no server; returns the tools of files and modules.

    Raises `ConfigError`, `PromptError` or `ToolError`.
    """
    check_names(settings)
    check_extras(settings)
    configured_strategies(settings)
    open_prompts(settings)
    return load_registry(settings.tools)


@asynccontextmanager
async def open_builder(
    settings: Settings | None = None,
    *,
    summarizer: Summarizer | None = None,
    embedder: Embedder | None = None,
    events: Events | None = None,
    metrics: Metrics = UNMEASURED,
    tracer: Tracer | None = None,
) -> AsyncIterator[ContextBuilder]:
    """Open a builder for use in this process, without a bus; its store is in memory by default.

    Without a ``tracer``, the spans of its builds go to the provider of the process, if any. In the
    background it makes the summaries that its builds need, with ``summarizer`` or the configured
    one, and publishes ``events`` about them. Rows are compared with questions by ``embedder``, or
    by the configured one if `recall.semantic` is on.

    Raises:
        ConfigError: The settings are no `Settings`, the strategy or the scheme of the store's URL
            is unknown, or an extra that the settings need isn't installed.
        PromptError: A prompt file is missing or invalid.
        StoreError: The store can't be opened.
        ToolError: A tool file is invalid.
    """
    keep_to_stderr()
    settings = Settings() if settings is None else settings
    require_settings(settings)
    settings.log_warnings()
    strategies, tracer = configured_strategies(settings), tracer or find_tracer()
    tokenizers, models = TiktokenTokenizers(), open_models().models
    await asyncio.to_thread(tokenizers.load, *_default_tokenizers(settings, models))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stores = await enter(open_stores(settings, tokenizers))
        sources = Sources(
            history=stores.history,
            profiles=stores.profiles,
            tools=await enter(open_tools(settings.tools, metrics)),
            prompts=await asyncio.to_thread(open_prompts, settings, metrics),
            summaries=stores.summaries,
            similarity=await enter(open_similarity(settings, stores.vectors, embedder))
            if embedder or settings.recall.semantic
            else None,
        )
        after_answer: tuple[AfterAnswer, ...] = ()
        if settings.summaries.enabled:
            if summarizer is None:
                counter = tokenizers.counter(settings.budget.tokenizer)
                summarizer = await enter(open_summarizer(settings, counter))
            maker = SummaryMaker(
                history=stores.history,
                summaries=stores.summaries,
                summarizer=summarizer,
                tokenizers=tokenizers,
                clock=now,
                settings=settings.summaries,
            )
            compactor = Compactor(maker, sources.failed_scopes, events, metrics, tracer)
            after_answer = (await enter(running_compactor(compactor)),)
        yield ContextBuilder(
            sources=sources,
            tokenizers=tokenizers,
            clock=now,
            settings=settings,
            strategies=strategies,
            models=models,
            metrics=metrics,
            tracer=tracer,
            after_answer=after_answer,
        )


def _default_tokenizers(settings: Settings, models: Models) -> set[str]:
    """Return the tokenizers of requests that name no model, and of stored rows."""
    limits = limits_of(settings.budget.model, models, settings.budget)
    return {settings.budget.tokenizer} | ({limits.counter} if limits else set())


@asynccontextmanager
async def open_worker(
    settings: Settings, bus: Bus, metrics: Metrics = UNMEASURED
) -> AsyncIterator[Worker]:
    """Open a worker on a bus; raises `ContextBuilderError`."""
    events = EventPublisher(bus, metrics)
    async with open_builder(settings, events=events, metrics=metrics) as builder:
        yield make_worker(bus, builder)


def make_worker(bus: Bus, builder: ContextBuilder, recent: RecentBuilds | None = None) -> Worker:
    """Assemble a worker; ``recent`` lists its builds and the requests that it refuses."""
    settings, metrics, pulse = builder.settings, builder.metrics, Pulse()
    builder = replace(builder, reports=bus.reports)
    spans = BusSpans(builder.tracer, settings.bus) if builder.tracer else None
    sender = Sender(bus, metrics)
    recorder = Recorder(builder.history, bus, settings, metrics)
    events = EventPublisher(bus, metrics)
    pruned = PrunedRows(builder.history, events, builder.tokenizers, settings.events)
    reports = BuildReports(bus.reports, settings, bus.now, recent.add if recent else None)
    after_answer = (reports.queue, pruned.queue)
    handler = Handler(
        bus=bus,
        builder=builder,
        sender=sender,
        recorder=recorder if settings.recorder.enabled else None,
        after_answer=(*builder.after_answer, *after_answer),
        on_refusal=recent.refuse if recent else lambda *_: None,
        spans=spans,
        paces=Paces(lambda: bus.now().timestamp()),
    )
    topics = (Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_RECALL_REQUEST)
    ingresses = [Ingress(bus, handler.refuse, pulse, topic) for topic in topics]
    recalls = RecallStream(bus)
    retention = Retention(builder.history, settings, bus.now)
    background: list[Callable[[], Coroutine[Any, Any, None]]] = [
        *(partial(repeat_with_backoff, "ingress", each.read_channel) for each in ingresses),
        *(partial(repeat_with_backoff, "held", each.retry_held) for each in ingresses),
        partial(repeat_with_backoff, "recalls", recalls.take_new),
        partial(every, settings.bus.lease_seconds, "recalls.claims", recalls.claim),
        partial(every, HOUSEKEEPING, "recalls.trim", recalls.trim),
        partial(repeat_with_backoff, "sender", sender.flush, pulse=pulse),
        partial(every, INTERVAL, "retention", retention.enforce),
    ]
    if settings.recorder.enabled:
        background += [
            partial(repeat_with_backoff, "recorder", recorder.take_new),
            partial(every, settings.bus.lease_seconds, "recorder.claims", recorder.claim),
            partial(every, settings.bus.heartbeat_seconds, "recorder.leases", recorder.renew),
        ]
    if prompts := builder.sources.prompts:
        seconds = settings.prompts.reload_seconds
        background.append(partial(every, seconds, "prompts", prompts.refresh))
    read = partial(builder.history.recent, PROBED_OWNER, max_rows=1)
    return Worker(
        bus=bus,
        settings=settings,
        handler=handler,
        spans=spans,
        admission=Admission(settings.worker.max_inflight_bytes),
        pulse=pulse,
        probes={"bus": bus.ping, "store": read},
        background=background,
        after_answer=after_answer,
    )


@asynccontextmanager
async def open_observed_worker(settings: Settings, bus: Bus) -> AsyncIterator[Worker]:
    """Open a worker with its HTTP servers; raises `ConfigError` if a port is in use."""
    async with AsyncExitStack() as stack:
        enter, metrics, served = stack.enter_async_context, None, None
        tracer = await enter(open_tracer(settings))
        if settings.health.port is not None:
            from service.http.prometheus import PrometheusMetrics  # noqa: PLC0415 - only here

            metrics = PrometheusMetrics(settings.store.url.get_secret_value().partition(":")[0])
        measured = metrics or UNMEASURED
        events = EventPublisher(bus, measured)
        builder = await enter(
            open_builder(settings, events=events, metrics=measured, tracer=tracer)
        )
        if settings.http.port is not None:
            from service.http.interface import open_http  # noqa: PLC0415 - likewise

            client = await enter(connect_client(settings, bus, tracer))
            served = await enter(open_http(settings.http.port, bus, builder, client.exchange))
        worker = make_worker(bus, builder, served.recent if served else None)
        if metrics and settings.health.port is not None:
            from service.http.health import open_health  # noqa: PLC0415 - likewise

            await enter(open_health(settings, settings.health.port, bus, worker, metrics))
        yield worker
