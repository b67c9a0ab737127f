"""The way to a server, on which its tools are taken out of what it says."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

from service.config.content import McpServerSettings

#: By which a server tells that its tools are others now; of old servers and of new ones.
CHANGED: Final = "notifications/tools/list_changed"

Received = SessionMessage | Exception


@dataclass(slots=True)
class Heard:
    """What a server has said that the SDK doesn't get to see."""

    #: Called when its tools have changed, and when it says no more.
    wake: Callable[[], None]
    #: As it lists them, until they are taken.
    tools: list[object] = field(default_factory=list)

    def take(self) -> list[object]:
        """Return the tools that came since this was last asked."""
        taken, self.tools = self.tools, []
        return taken


class Intake:
    """The stream of what a server says, without the tools in it.

    The SDK refuses a whole page for one bad tool in it. So it gets pages without any, and each tool
    is judged by itself.
    """

    def __init__(self, received: ReadStream[Received], heard: Heard) -> None:
        self._received = received
        self._heard = heard

    async def receive(self) -> Received:
        """Return the next message."""
        return self._sifted(await self._received.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._received.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        try:
            return self._sifted(await anext(self._received))
        except StopAsyncIteration:
            self._heard.wake()
            raise

    async def __aenter__(self) -> Self:
        await self._received.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._received.__aexit__(kind, error, trace)

    def _sifted(self, received: Received) -> Received:
        message = received.message if isinstance(received, SessionMessage) else None
        if isinstance(message, JSONRPCNotification) and message.method == CHANGED:
            self._heard.wake()
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            self._heard.tools += message.result["tools"]
            message.result["tools"] = []
        return received


@asynccontextmanager
async def open_transport(
    server: McpServerSettings, heard: Heard
) -> AsyncIterator[TransportStreams]:
    """Start the server's command, or open its URL; what it says is taken note of."""
    async with _over_http(server) if server.url else _over_stdio(server) as (received, sent):
        yield Intake(received, heard), sent


@asynccontextmanager
async def _over_http(server: McpServerSettings) -> AsyncIterator[TransportStreams]:
    url = server.url.get_secret_value() if server.url else ""
    headers = {name: value.get_secret_value() for name, value in server.headers.items()}
    # a server may keep quiet for hours on the stream of its notices
    timeout = httpx2.Timeout(server.timeout_seconds, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _over_stdio(server: McpServerSettings) -> AsyncIterator[TransportStreams]:
    env = {name: value.get_secret_value() for name, value in server.env.items()}
    command = StdioServerParameters(command=server.command or "", args=[*server.args], env=env)
    # its stderr would stand between lines of our log
    with _nowhere() as nowhere:
        async with stdio_client(command, errlog=nowhere) as streams:
            yield streams


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")
