"""Servers that are followed while the service runs, and their tools in the registry."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog

from formatters.model import Tool
from service.adapters.mcp.connection import cause_of, connected, follow
from service.adapters.mcp.definitions import Definitions
from service.adapters.tools.registry import InMemoryToolRegistry
from service.config.content import McpServerSettings, ToolsSettings
from service.errors import ToolError
from service.observe.metrics import Metrics
from service.ports.services import ServerTools
from service.wire.tools import check_definition

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Files of definitions, one a server; without a folder, nothing is kept."""

    folder: Path | None = None

    def read(self, server: McpServerSettings) -> tuple[Tool, ...]:
        """Return what the server listed last, if it was allowed the same tools then."""
        if self.folder is None:
            return ()
        path = self._path(server)
        try:
            kept = json.loads(path.read_bytes())
            if not isinstance(kept, Mapping) or kept.get("allowed") != _allowed(server):
                return ()
            tools = tuple(kept.get("tools", ()))
            for place, tool in enumerate(tools):
                check_definition(tool, f"tool {place}")
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError, RecursionError, ToolError) as error:
            log.warning("tools.snapshot_unreadable", path=str(path), reason=str(error))
            return ()
        return tools

    def write(self, server: McpServerSettings, tools: Sequence[Tool]) -> None:
        """Keep what the server lists; where that fails, the service goes on without."""
        if self.folder is None:
            return
        path = self._path(server)
        new = path.with_suffix(".new")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps({"allowed": _allowed(server), "tools": tools}))
            new.replace(path)  # a reader gets the old one or the new one
        except OSError as error:
            log.warning("tools.snapshot_unwritten", path=str(path), reason=str(error))

    def _path(self, server: McpServerSettings) -> Path:
        return (self.folder or Path()) / f"{server.name}.json"


def _allowed(server: McpServerSettings) -> list[list[str]]:
    return [[*server.allow], [*server.deny]]


#: After the first failure in a row, and at most; each wait is twice the one before. Seconds.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
MOST_DOUBLINGS: Final = 6


class Followed:
    """One server, which may come and go."""

    def __init__(
        self,
        server: McpServerSettings,
        snapshots: Snapshots,
        registry: InMemoryToolRegistry,
        metrics: Metrics,
    ) -> None:
        self.server = server
        #: Set after the first attempt to list its tools, however it ended.
        self.settled = asyncio.Event()
        self._snapshots = snapshots
        self._registry = registry
        self._metrics = metrics
        self._failures = 0
        self._scope = anyio.CancelScope()
        registry.replace(server.name, snapshots.read(server))
        registry.mark(server.name, stale=True)

    async def run(self) -> None:
        """Follow the server until `stop`, through any number of connections."""
        with self._scope:
            while True:
                try:
                    await follow(self.server, self._take)
                except Exception as error:  # noqa: BLE001 - the SDK passes on whatever a server sets off
                    self._fail(error)
                await anyio.sleep(self._pause)

    def stop(self) -> None:
        """End it; a command of ours is stopped too, in a few seconds at most."""
        self._scope.cancel()

    @property
    def _pause(self) -> float:
        doubled = FIRST_PAUSE * 2.0 ** min(self._failures - 1, MOST_DOUBLINGS)
        return min(doubled, LONGEST_PAUSE, self.server.refresh_seconds)

    def _take(self, found: Definitions) -> None:
        self._failures = 0
        changed = self._registry.replace(self.server.name, found.tools)
        self._registry.mark(self.server.name, stale=False)
        self._metrics.count_refresh(self.server.name, "changed" if changed else "unchanged")
        if changed or not self.settled.is_set():
            self._snapshots.write(self.server, found.tools)
            log.info("tools.listed", source=self.server.name, tools=len(found.tools))
            for reason in found.refused:
                log.warning("tool.refused", source=self.server.name, reason=reason)
        self.settled.set()

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._registry.mark(self.server.name, stale=True)
        self._metrics.count_refresh(self.server.name, "failed")
        log.warning("tools.unlisted", source=self.server.name, reason=cause_of(error))
        self.settled.set()


@asynccontextmanager
async def following(
    settings: ToolsSettings, registry: InMemoryToolRegistry, metrics: Metrics
) -> AsyncIterator[None]:
    """Keep the tools of servers in a registry; begins when each has answered or had its time."""
    snapshots = Snapshots(settings.snapshots)
    followed = [Followed(server, snapshots, registry, metrics) for server in settings.mcp]
    # no task group: it would wrap what is raised inside the context
    tasks = [asyncio.create_task(each.run()) for each in followed]
    try:
        await asyncio.gather(*(_settled(each) for each in followed))
        yield
    finally:
        for each in followed:
            each.stop()
        await asyncio.wait(tasks)


async def _settled(followed: Followed) -> None:
    """Wait no longer than the server has to answer; what hangs takes seconds more to be ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(followed.server.timeout_seconds):
            await followed.settled.wait()


async def list_servers(settings: ToolsSettings) -> list[ServerTools]:
    """List the tools of servers once, all at the same time; those that fail say why."""
    snapshots = Snapshots(settings.snapshots)
    return list(await asyncio.gather(*(_listed(server, snapshots) for server in settings.mcp)))


async def _listed(server: McpServerSettings, snapshots: Snapshots) -> ServerTools:
    try:
        async with connected(server) as connection:
            found = await connection.definitions()
    except Exception as error:  # noqa: BLE001 - the SDK passes on whatever a server sets off
        return ServerTools(server.name, snapshots.read(server), error=cause_of(error))
    return ServerTools(server.name, found.tools, found.refused)
