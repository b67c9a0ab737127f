"""The leanest client of Redis: hiredis on an asyncio protocol, many commands in one write."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import hiredis

Part = bytes | str | int
Received = Callable[[list[bytes]], None]

#: Kinds of what a subscriber gets, before RESP3.
MESSAGE: Final = b"message"


class Connection(asyncio.Protocol):
    """One connection; what channels bring goes to ``received``, a list for each read."""

    def __init__(self, received: Received | None = None) -> None:
        self._received = received
        self._reader = hiredis.Reader()
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: asyncio.Future[object] | None = None
        #: Set when the server has gone, which ends every measurement.
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called by asyncio."""
        # uvloop's transports are no subclasses of asyncio's
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Note that nothing more will come; called by asyncio."""
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        """Sort replies from messages; called by asyncio."""
        self._reader.feed(data)
        messages: list[bytes] = []
        while (reply := self._reader.gets()) is not False:
            self._sort(reply, messages)
        if messages and self._received:
            self._received(messages)

    def send(self, commands: Sequence[tuple[Part, ...]]) -> None:
        """Send commands in one write; their replies are read and forgotten."""
        if self._transport is None:
            raise RuntimeError("not connected")
        self._transport.write(b"".join(map(_packed, commands)))

    async def ask(self, *command: Part) -> object:
        """Send a command while no other is on its way; returns its reply, raises an error's."""
        self._waiting = asyncio.get_running_loop().create_future()
        self.send([command])
        return await self._waiting

    def close(self) -> None:
        """Close the connection."""
        if self._transport:
            self._transport.close()

    def _sort(self, reply: Any, messages: list[bytes]) -> None:  # noqa: ANN401 - whatever Redis says
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == MESSAGE:
            messages.append(reply[2])
        elif self._waiting and not self._waiting.done():
            if isinstance(reply, hiredis.ReplyError):
                self._waiting.set_exception(reply)
            else:
                self._waiting.set_result(reply)
        elif isinstance(reply, hiredis.ReplyError):
            raise reply


async def connect(url: str, received: Received | None = None) -> Connection:
    """Connect and authenticate by a URL with a password."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    host, port = parts.hostname or "", parts.port or 0
    _, connection = await loop.create_connection(lambda: Connection(received), host, port)
    await connection.ask("AUTH", parts.password or "")
    return connection


def _packed(command: tuple[Part, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # of any length
    return packed
