"""Keeps the tools of MCP servers in the registry while the service runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import structlog

from formatters.model import Tool
from service.adapters.files import read_regular
from service.adapters.mcp.connection import connect, describe_cause, follow
from service.adapters.tools.registry import InMemoryToolRegistry
from service.config.content import McpServerSettings, ToolsSettings
from service.errors import ToolError
from service.observe.metrics import Metrics
from service.ports.services import ServerTools
from service.wire.tool_definitions import check_definition

log = structlog.get_logger(__name__)

#: The pause after the first of consecutive failures, and the longest; each is twice the previous.
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 60.0
MAX_DOUBLINGS: Final = 6


@asynccontextmanager
async def follow_servers(
    settings: ToolsSettings, registry: InMemoryToolRegistry, metrics: Metrics
) -> AsyncIterator[None]:
    """Keep the servers' tools in a registry; starts when each has answered or timed out."""
    snapshots = Snapshots(settings.snapshots)
    servers = [FollowedServer(server, snapshots, registry, metrics) for server in settings.mcp]
    # not in a task group, which would wrap exceptions of the caller's block
    tasks = [asyncio.create_task(server.run()) for server in servers]
    try:
        await asyncio.gather(*(server.wait() for server in servers))
        yield
    finally:
        for server in servers:
            server.stop()
        await asyncio.wait(tasks)


async def list_servers(settings: ToolsSettings) -> list[ServerTools]:
    """List the tools of all servers once, concurrently; a server that fails has an error."""
    snapshots = Snapshots(settings.snapshots)
    return await asyncio.gather(*(_list_server(server, snapshots) for server in settings.mcp))


async def _list_server(server: McpServerSettings, snapshots: "Snapshots") -> ServerTools:
    try:
        async with connect(server) as connection:
            return await connection.list_tools()
    except Exception as error:  # noqa: BLE001 - the SDK passes on any error that a server causes
        return ServerTools(server.name, snapshots.read(server), error=describe_cause(error))


@dataclass(slots=True, eq=False)
class FollowedServer:
    """A server whose tools are kept in the registry, through any number of connections."""

    _server: McpServerSettings
    _snapshots: "Snapshots"
    _registry: InMemoryToolRegistry
    _metrics: Metrics
    _failures: int = 0
    #: Set after the first attempt to list the tools, whether or not it succeeded.
    _tried: asyncio.Event = field(default_factory=asyncio.Event)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def __post_init__(self) -> None:
        self._registry.replace(self._server.name, self._snapshots.read(self._server))
        self._registry.mark(self._server.name, stale=True)

    async def run(self) -> None:
        """Follow the server until `stop`, connecting again after each failure."""
        with self._scope:
            while True:
                try:
                    await follow(self._server, self._on_listed)
                except Exception as error:  # noqa: BLE001 - the SDK passes on any error that a server causes
                    self._on_failed(error)
                pause = FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, MAX_DOUBLINGS)
                await anyio.sleep(min(pause, MAX_PAUSE_SECONDS, self._server.refresh_seconds))

    def stop(self) -> None:
        """Stop `run`; it also ends a command that was started, within a few seconds."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Wait for the first attempt, but no longer than the server may take to answer."""
        # `run` may take seconds more to end a command that hangs
        with suppress(TimeoutError):
            async with asyncio.timeout(self._server.timeout_seconds):
                await self._tried.wait()

    def _on_listed(self, listed: ServerTools) -> None:
        name = self._server.name
        is_back = self._failures > 0
        self._failures = 0
        changed = self._registry.replace(name, listed.tools)
        self._registry.mark(name, stale=False)
        self._metrics.count("tool_refresh", name, "changed" if changed else "unchanged")
        if changed or is_back or not self._tried.is_set():
            self._snapshots.write(self._server, listed.tools)
            log.info("tools.listed", source=name, tools=len(listed.tools))
            for reason in listed.refused:
                log.warning("tool.refused", source=name, reason=reason)
        self._tried.set()

    def _on_failed(self, error: Exception) -> None:
        name = self._server.name
        self._failures += 1
        self._registry.mark(name, stale=True)
        self._metrics.count("tool_refresh", name, "failed")
        if self._failures == 1:  # an outage is logged once, and its end by `tools.listed`
            log.warning("tools.unlisted", source=name, reason=describe_cause(error))
        self._tried.set()


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Files with the definitions that each server listed last; none without a folder."""

    folder: Path | None = None

    def read(self, server: McpServerSettings) -> tuple[Tool, ...]:
        """Return the last definitions; none if the patterns of allowed tools have changed."""
        if self.folder is None:
            return ()
        path = self.folder / f"{server.name}.json"
        try:
            snapshot = json.loads(read_regular(path, self.folder))
            if not isinstance(snapshot, Mapping) or snapshot.get("allowed") != _patterns(server):
                return ()
            tools = tuple(snapshot.get("tools", ()))
            for index, tool in enumerate(tools):
                check_definition(tool, f"tool {index}")
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError, RecursionError, ToolError) as error:
            log.warning("tools.snapshot_unreadable", path=str(path), reason=str(error))
            return ()
        return tools

    def write(self, server: McpServerSettings, tools: Sequence[Tool]) -> None:
        """Save what a server lists; a failure is logged, and changes nothing else."""
        if self.folder is None:
            return
        path = self.folder / f"{server.name}.json"
        new = path.with_suffix(".new")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps({"allowed": _patterns(server), "tools": tools}))
            new.replace(path)  # a reader sees the old file or the new one
        except OSError as error:
            log.warning("tools.snapshot_unwritten", path=str(path), reason=str(error))


def _patterns(server: McpServerSettings) -> list[list[str]]:
    return [[*server.allow], [*server.deny]]
