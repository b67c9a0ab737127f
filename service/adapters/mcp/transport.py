"""Transports to MCP servers, which take the listed tools out of the messages.

The SDK rejects a whole page for one invalid tool. So it gets pages without tools, and each tool is
checked on its own.
"""

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

from service.config.content import McpServerSettings

#: The notification of a server whose tools have changed.
CHANGED: Final = "notifications/tools/list_changed"

Received = SessionMessage | Exception


@dataclass(slots=True)
class ServerMessages:
    """What was taken from a server's messages."""

    #: Called when the tools have changed, and when the connection has ended.
    wake: Callable[[], None]
    #: The listed tools, as the server sends them.
    tools: list[object] = field(default_factory=list)

    def take_tools(self) -> list[object]:
        """Return the tools that have arrived since the last call."""
        taken, self.tools = self.tools, []
        return taken

    def filter(self, received: Received) -> Received:
        """Return a message without its tools."""
        message = received.message if isinstance(received, SessionMessage) else None
        if isinstance(message, JSONRPCNotification) and message.method == CHANGED:
            self.wake()
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            self.tools += message.result["tools"]
            message.result["tools"] = []
        return received


@asynccontextmanager
async def open_transport(
    server: McpServerSettings, messages: ServerMessages
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Received], Any]]:
    """Start the server's command or open its URL; yields a stream to read and one to write."""
    transport = _open_http(server) if server.url else _open_stdio(server)
    async with transport as (received, sent), anyio.create_task_group() as tasks:
        send, filtered = anyio.create_memory_object_stream[Received]()
        with send, filtered:
            tasks.start_soon(_forward, received, send, messages)
            yield filtered, sent
            tasks.cancel_scope.cancel()


async def _forward(
    received: AsyncIterable[Received],
    send: MemoryObjectSendStream[Received],
    messages: ServerMessages,
) -> None:
    """Pass messages on, without their tools, until the server or the SDK closes its end."""
    try:
        with send, suppress(anyio.BrokenResourceError):
            async for message in received:
                await send.send(messages.filter(message))
    finally:
        messages.wake()


@asynccontextmanager
async def _open_http(server: McpServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    url = server.url.get_secret_value() if server.url else ""
    headers = {name: value.get_secret_value() for name, value in server.headers.items()}
    # the stream of notifications may be silent for hours
    timeout = httpx2.Timeout(server.timeout_seconds, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _open_stdio(server: McpServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    env = {name: value.get_secret_value() for name, value in server.env.items()}
    command = StdioServerParameters(command=server.command or "", args=[*server.args], env=env)
    # its stderr would appear between the lines of our log
    with Path(os.devnull).open("w") as devnull:  # noqa: ASYNC230 - it never blocks
        async with stdio_client(command, errlog=devnull) as streams:
            yield streams
