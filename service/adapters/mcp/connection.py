"""A connection to an MCP server: it lists the server's tools, and notices when they change."""

import asyncio
import json
import math
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types import (
    Implementation,
    JSONRPCNotification,
    JSONRPCResponse,
    PaginatedRequestParams,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from formatters.guard import one_line
from formatters.rows import fix_surrogates
from service.adapters.mcp.definitions import read_definitions
from service.config.content import McpServerSettings
from service.errors import ToolError
from service.observe.logs import mask_urls
from service.ports.services import ServerTools

#: The limits of one listing.
MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1_000
#: The longest message of an error that is reported.
MAX_CAUSE_CHARS: Final = 200
#: The shortest time between two listings, however often a server reports changes.
MIN_INTERVAL_SECONDS: Final = 1.0
#: The notification of a server whose tools have changed.
CHANGED: Final = "notifications/tools/list_changed"

Received = SessionMessage | Exception
#: The forms of messages that are no answers.
_REQUESTS: Final = (("JSONRPCRequest",), ("JSONRPCNotification",))


async def follow(server: McpServerSettings, on_listed: Callable[[ServerTools], None]) -> None:
    """List a server's tools at once, when they change, and at regular intervals; never returns.

    Raises the error that ends the connection.
    """
    changed, ready = asyncio.Event(), asyncio.Event()
    async with connect(server, changed.set) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.listen, ready)
        with anyio.fail_after(server.timeout_seconds):
            await ready.wait()
        while True:
            changed.clear()
            on_listed(await connection.list_tools())
            await anyio.sleep(min(MIN_INTERVAL_SECONDS, server.refresh_seconds))
            with anyio.move_on_after(server.refresh_seconds):
                await changed.wait()


@asynccontextmanager
async def connect(
    server: McpServerSettings, wake: Callable[[], None] = lambda: None
) -> AsyncIterator["Connection"]:
    """Connect within the server's time limit; raises as `ServerMessages.within`, and as the SDK.

    ``wake`` is called when tools have changed, and when the connection is lost.
    """
    messages = ServerMessages(wake)
    info = Implementation(name="context-builder", version=version("ctxb"))
    with messages.within(server.timeout_seconds) as opening:
        async with Client(open_transport(server, messages), client_info=info, cache=None) as client:
            # the limit is for opening, but its scope has to enclose the whole connection
            opening.deadline = math.inf
            yield Connection(server, client, messages)


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection."""

    server: McpServerSettings
    client: Client
    messages: "ServerMessages"

    async def list_tools(self) -> ServerTools:
        """List all tools; raises as `connect`."""
        with self.messages.within(self.server.timeout_seconds):
            tools, problem = await self._read_pages()
        listed = read_definitions(tools, self.server)
        if problem is None:
            return listed
        return replace(listed, refused=[*listed.refused, f"{self.server.name}: {problem}"])

    async def _read_pages(self) -> tuple[list[object], str | None]:
        """Return the tools of all pages, and why later pages were not read."""
        self.messages.take_tools()
        tools: list[object] = []
        cursor: str | None = None
        seen: set[str | None] = set()
        while cursor not in seen:
            if len(seen) == MAX_PAGES:
                return tools, f"it has more than {MAX_PAGES} pages"
            seen.add(cursor)
            params = PaginatedRequestParams(cursor=cursor)
            page = await self.client.session.list_tools(params=params)
            tools += self.messages.take_tools()
            if len(tools) > MAX_TOOLS:
                return tools[:MAX_TOOLS], f"it has more than {MAX_TOOLS} tools"
            if not page.next_cursor:  # some servers send an empty one
                return tools, None
            cursor = page.next_cursor
        return tools, "a cursor was repeated"

    async def listen(self, ready: asyncio.Event) -> None:
        """Keep a subscription to changes open; sets ``ready`` when no later change is missed.

        Returns if the server needs no subscription (before 2026), or supports none.
        """
        with suppress(ListenNotSupportedError, MCPError):
            while True:
                with suppress(SubscriptionLost):
                    async with self.client.listen(tools_list_changed=True) as subscription:
                        ready.set()
                        self.messages.wake()  # nobody was notified between two subscriptions
                        async for _ in subscription:
                            pass  # the transport has seen the notification
                await anyio.sleep(MIN_INTERVAL_SECONDS)
        ready.set()


@dataclass(slots=True)
class ServerMessages:
    """The notices in a server's messages.

    The SDK rejects a whole page for one invalid tool. So it gets pages without tools, and each tool
    is checked on its own.
    """

    #: Called when the tools have changed, and when the connection has ended.
    wake: Callable[[], None]
    #: The listed tools, as the server sends them.
    tools: list[object] = field(default_factory=list)
    #: What is wrong with the last message that can't be read.
    problem: str = ""

    @contextmanager
    def within(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """Limit the time to wait for an answer.

        Raises:
            TimeoutError: It has passed.
            ToolError: It has passed, and some message can't be read: it may have been the answer.
        """
        self.problem = ""
        try:
            with anyio.fail_after(seconds) as scope:
                yield scope
        except TimeoutError as error:
            if self.problem:
                raise ToolError(f"no answer that can be read: {self.problem}") from error
            raise

    def take_tools(self) -> list[object]:
        """Return the tools that have arrived since the last call."""
        taken, self.tools = self.tools, []
        return taken

    def filter(self, received: Received) -> Received:
        """Return a message without its tools."""
        if isinstance(received, ValidationError):
            received = self._read_again(received)
        message = received.message if isinstance(received, SessionMessage) else None
        if isinstance(message, JSONRPCNotification) and message.method == CHANGED:
            self.wake()
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            self.tools += message.result["tools"]
            message.result["tools"] = []
        return received

    def _read_again(self, error: ValidationError) -> Received:
        """Read JSON that the SDK refuses for one of its tools, such as one with half a character.

        Return the error, and note it, if the message is invalid itself.
        """
        try:
            message = json.loads(error.errors()[0]["input"])
            return SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))
        except (TypeError, ValueError, RecursionError):
            # for each form of a message; that of an answer which fits best has the deepest place
            causes = [each for each in error.errors() if each["loc"][:1] not in _REQUESTS]
            cause = max(causes or error.errors(), key=lambda each: len(each["loc"]))
            pointer = "".join(f"/{step}" for step in cause["loc"][1:])
            self.problem = f"{pointer} {cause['msg']}".strip()
            return error


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


def describe_cause(error: BaseException) -> str:
    """Return the first cause in an error or a group of them, on one line and without secrets."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ToolError):
        return error.detail
    name, text = type(error).__name__, one_line(fix_surrogates(str(error)))
    if len(text) > MAX_CAUSE_CHARS:
        text = f"{text[:MAX_CAUSE_CHARS]}…"
    return mask_urls(f"{name}: {text}" if text else name)
