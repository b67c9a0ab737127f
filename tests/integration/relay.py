"""A relay between a bus and its server, which breaks off in the middle of a reply."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

#: Bytes that are passed on at a time.
CHUNK = 65_536


@dataclass
class Relay:
    """Passes on what is said between clients and a server."""

    url: str
    #: Once the server says this, it is the last that the client hears of it.
    last_word: bytes | None = None
    #: How often it broke off.
    cuts: int = 0

    async def up(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        """Pass on what a client says."""
        while said := await client.read(CHUNK):
            server.write(said)
        server.close()

    async def down(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass on what the server says, up to the last word."""
        while said := await server.read(CHUNK):
            if self.last_word and self.last_word in said:
                client.write(said[: said.index(self.last_word) + len(self.last_word)])
                self.last_word = None
                self.cuts += 1
                break
            client.write(said)
        client.close()


@asynccontextmanager
async def relaying(url: str) -> AsyncIterator[Relay]:
    """Relay connections to the server at ``url``."""
    place = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(place.hostname, place.port)
        tasks.add(asyncio.create_task(relay.up(reader, to_server)))
        tasks.add(asyncio.create_task(relay.down(server, writer)))

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    relay = Relay(place._replace(netloc=f"127.0.0.1:{port}").geturl())
    try:
        yield relay
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
