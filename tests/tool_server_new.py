"""A server of the `mcp` package: a program with the file of `tests.tool_server`."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

#: Seconds between two looks at the file.
LOOK_SECONDS = 0.02


async def serve(file: Path, port: int | None) -> None:
    """Serve the tools of a file over stdio, or over HTTP where there is a port."""
    changes = InMemorySubscriptionBus()

    async def listed(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        reported = _definitions(file)
        if reported.get("hangs"):
            await asyncio.Event().wait()
        place = int(params.cursor) if params and params.cursor else 0
        last = place == len(reported["pages"]) - 1
        following = place if reported.get("repeats") else None
        return types.ListToolsResult(
            tools=[types.Tool.model_validate(each) for each in reported["pages"][place]],
            next_cursor=str(following if last else place + 1) if following or not last else None,
        )

    server = Server("its", on_list_tools=listed, on_subscriptions_listen=ListenHandler(changes))

    @asynccontextmanager
    async def watching() -> AsyncIterator[None]:
        async def watch() -> None:
            seen = _written(file)
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                if (now := _written(file)) != seen:
                    seen = now
                    await changes.publish(ToolsListChanged())

        task = asyncio.create_task(watch())
        yield
        task.cancel()

    async with watching():
        if port:
            app = server.streamable_http_app()
            await uvicorn.Server(uvicorn.Config(app, port=port, log_level="error")).serve()
            return
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())


def _written(file: Path) -> int:
    return file.stat().st_ino


def _definitions(file: Path) -> Mapping[str, Any]:
    reported: Mapping[str, Any] = json.loads(file.read_text())
    return reported


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None))
