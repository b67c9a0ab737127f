"""A server from before 2026, written by hand: it checks nothing, and reports changes unrequested.

A program with the file of `tests.tool_server`, of which it lists the first page as it is. It ends
once where the file says ``ends``.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

#: Seconds between two looks at the file.
LOOK_SECONDS = 0.02
#: The answer of JSON-RPC to an unknown method.
NO_METHOD = {"code": -32601, "message": "there is no such method"}


def say(**message: Any) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def watch(file: Path, seen: int) -> None:
    """Report changes of the file since it was last seen."""
    while True:
        time.sleep(LOOK_SECONDS)
        if (now := file.stat().st_ino) != seen:
            seen = now
            if json.loads(file.read_text()).get("ends"):
                os._exit(1)
            say(method="notifications/tools/list_changed")


def answer(asked: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the answer to a request."""
    if asked["method"] == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        us = {"name": "old", "version": "1"}
        return {
            "result": {
                "protocolVersion": "2025-06-18",
                "capabilities": capabilities,
                "serverInfo": us,
            }
        }
    if asked["method"] == "tools/list":
        return {"result": {"tools": json.loads(file.read_text())["pages"][0]}}
    return {"error": NO_METHOD}


def main() -> None:
    """Serve until there is nothing more to read."""
    file = Path(sys.argv[1])
    seen = file.stat().st_ino
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            say(id=asked["id"], **answer(asked, file))
        if asked["method"] == "notifications/initialized":
            threading.Thread(target=watch, args=[file, seen], daemon=True).start()


if __name__ == "__main__":
    main()
