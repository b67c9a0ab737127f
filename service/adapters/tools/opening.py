"""The registry of a process: tools of files and modules, and what servers list meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.adapters import mcp_servers
from service.adapters.tools.registry import InMemoryToolRegistry
from service.adapters.tools.sources import find_sources
from service.config.content import ToolsSettings
from service.observe.metrics import Metrics


def load_registry(settings: ToolsSettings) -> InMemoryToolRegistry:
    """Load the tools of files and modules; raises `ToolError` with the place of what is wrong."""
    registry = InMemoryToolRegistry()
    for source in find_sources(settings.paths, settings.modules):
        for definition in source.read():
            registry.register(definition)
    return registry


@asynccontextmanager
async def open_tools(
    settings: ToolsSettings, metrics: Metrics
) -> AsyncIterator[InMemoryToolRegistry]:
    """Load the configured tools, and follow what the servers among them list.

    A server that doesn't answer is waited for as long as its timeout, and asked again later.

    Raises:
        ConfigError: There are servers, but not the extra that they need.
        ToolError: A tool file is wrong.
    """
    registry = load_registry(settings)
    if not settings.mcp:
        yield registry
        return
    servers = await asyncio.to_thread(mcp_servers)
    async with servers.follow(settings, registry, metrics):
        yield registry
