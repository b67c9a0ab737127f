"""The last good listing of each server, in a folder: for the time when it is away."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from formatters.model import Tool
from service.config.tools import McpServerSettings
from service.errors import ToolError
from service.toolcheck import check_definition

log = structlog.get_logger()


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
