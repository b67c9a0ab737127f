"""Starts servers whose tools are those of a file, and says what is in it.

The file holds ``pages``, lists of tools as MCP has them; ``repeats`` gives the last page the cursor
of the page itself, ``hangs`` answers no more. When the file changes, listeners are notified.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.bus_server import free_port

#: A server of the `mcp` package, and one from before 2026.
NEW: Final = str(Path(__file__).with_name("tool_server_new.py"))
OLD: Final = str(Path(__file__).with_name("tool_server_old.py"))


def tool(name: str, description: str = "What it does.", **more: Any) -> dict[str, Any]:
    """Return a tool as MCP has it."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    return {"name": name, "description": description, "inputSchema": schema, **more}


class ToolServer:
    """The tools of a server, and the server where it is started over HTTP."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "listed.json"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.lists([])

    def lists(self, *pages: list[dict[str, Any]], **more: Any) -> None:
        """List these from now on."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"pages": pages, **more}))
        new.replace(self._file)

    def over_stdio(self, program: str = NEW, **settings: Any) -> dict[str, Any]:
        """Return the settings of a server that is started as a command."""
        args = [program, str(self._file)]
        return {"name": "its", "command": sys.executable, "args": args, **settings}

    def over_http(self, **settings: Any) -> dict[str, Any]:
        """Return the settings of a server that is reached at a URL."""
        return {"name": "its", "url": f"http://127.0.0.1:{self._port}/mcp", **settings}

    def start(self) -> None:
        """Start it over HTTP, on the same port every time."""
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, NEW, str(self._file), str(self._port)]
        )

    def kill(self) -> None:
        """End it, as a crash does; nothing happens where it doesn't run."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None
