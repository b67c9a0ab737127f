"""The adapters, by name or URL scheme; most are imported when they are used.

A new adapter is a module and a line in a table.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from service.adapters.bus_options import BusOptions
from service.adapters.sql import DATABASES
from service.adapters.summarizers.extractive_summarizer import open_extractive_summarizer
from service.adapters.tools.registry import InMemoryToolRegistry
from service.config.content import EmbedderSettings, SummarizerSettings, ToolsSettings
from service.config.endpoints import StoreSettings
from service.errors import MissingExtraError
from service.observe.metrics import Metrics
from service.ports.bus import Bus
from service.ports.services import (
    CompareVectors,
    Embedder,
    LoadCounter,
    ServerTools,
    Summarizer,
    TokenCounter,
)
from service.ports.stores import Clock, Stores

OpenBus = Callable[[str, BusOptions], AbstractAsyncContextManager[Bus]]
OpenStores = Callable[[StoreSettings, LoadCounter, Clock], AbstractAsyncContextManager[Stores]]
OpenSummarizer = Callable[
    [SummarizerSettings, TokenCounter], AbstractAsyncContextManager[Summarizer]
]
OpenEmbedder = Callable[[EmbedderSettings], AbstractAsyncContextManager[Embedder]]
FollowServers = Callable[
    [ToolsSettings, InMemoryToolRegistry, Metrics], AbstractAsyncContextManager[None]
]
ListServers = Callable[[ToolsSettings], Awaitable[list[ServerTools]]]


class McpServers(NamedTuple):
    """Functions that list the tools of servers, continuously or once."""

    follow: FollowServers
    list: ListServers


def _redis_bus(url: str, options: BusOptions) -> AbstractAsyncContextManager[Bus]:
    from service.adapters.redis.bus import open_redis_bus

    return open_redis_bus(url, options)


def _memory_bus(_url: str, options: BusOptions) -> AbstractAsyncContextManager[Bus]:
    from service.adapters.memory.bus import open_memory_bus

    return open_memory_bus(options)


def _sql_stores(
    settings: StoreSettings, load_counter: LoadCounter, clock: Clock
) -> AbstractAsyncContextManager[Stores]:
    from service.adapters.sql.store import open_sql_store

    return open_sql_store(settings.url.get_secret_value(), load_counter, clock, settings)


def _memory_stores(
    _settings: StoreSettings, load_counter: LoadCounter, clock: Clock
) -> AbstractAsyncContextManager[Stores]:
    from service.adapters.memory.store import open_memory_store

    return open_memory_store(load_counter, clock)


def _openai(
    settings: SummarizerSettings, counter: TokenCounter
) -> AbstractAsyncContextManager[Summarizer]:
    try:
        from service.adapters.summarizers.openai import open_openai_summarizer
    except ImportError as error:
        raise MissingExtraError("summaries.summarizer.kind: openai", "llm") from error
    return open_openai_summarizer(settings, counter)


def _minilm(settings: EmbedderSettings) -> AbstractAsyncContextManager[Embedder]:
    try:
        from service.adapters.embedders.minilm import open_minilm_embedder
    except ImportError as error:
        raise MissingExtraError("recall.semantic", "semantic") from error
    return open_minilm_embedder(settings)


def _openai_embedder(settings: EmbedderSettings) -> AbstractAsyncContextManager[Embedder]:
    try:
        from service.adapters.embedders.openai import open_openai_embedder
    except ImportError as error:
        raise MissingExtraError("recall.embedder.kind: openai", "llm,semantic") from error
    return open_openai_embedder(settings)


def find_comparison() -> CompareVectors:
    """Return what compares vectors; raises `ConfigError` without the extra."""
    try:
        from service.adapters.embedders.vectors import compare_vectors
    except ImportError as error:
        raise MissingExtraError("recall.semantic", "semantic") from error
    return compare_vectors


def mcp_servers() -> McpServers:
    """Import the MCP adapter, which takes seconds; raises `ConfigError` without the extra."""
    try:
        from service.adapters.mcp.following import follow_servers, list_servers
    except ImportError as error:
        raise MissingExtraError("tools.mcp: a server", "mcp") from error
    return McpServers(follow_servers, list_servers)


#: By the scheme of `bus.url`.
BUSES: dict[str, OpenBus] = {
    "memory": _memory_bus,
    "redis": _redis_bus,
    "rediss": _redis_bus,
    "redis+cluster": _redis_bus,
    "rediss+cluster": _redis_bus,
    "unix": _redis_bus,
}

#: By the scheme of `store.url`.
STORES: dict[str, OpenStores] = {"memory": _memory_stores, **dict.fromkeys(DATABASES, _sql_stores)}

#: By `summaries.summarizer.kind`.
SUMMARIZERS: dict[str, OpenSummarizer] = {
    "extractive": open_extractive_summarizer,
    "openai": _openai,
}

#: By `recall.embedder.kind`.
EMBEDDERS: dict[str, OpenEmbedder] = {"minilm": _minilm, "openai": _openai_embedder}
