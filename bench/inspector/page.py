"""The requests of a page to a worker: the live feed, and every few seconds lists and a build.

The first line on stdin is the worker's address and an owner, as JSON. Each further one opens the
page, or closes it, and is answered with: ``open`` when the feed is open, and then the number of
builds that it reported.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

#: Seconds between two reads of the lists; the page's widget has the same interval without a feed.
POLL_SECONDS: Final = 3.0
#: The prefix of each build in the feed.
BUILD: Final = b"event: build\n"
#: Bytes of the feed that are read at a time at most.
CHUNK: Final = 1 << 20


@dataclass(slots=True)
class Page:
    """A page for one owner."""

    address: str
    owner: str
    #: Those that the feed reported.
    builds: int = 0

    async def show(self, ready: asyncio.Event) -> None:
        """Listen and request until cancelled; ``ready`` is set when the feed is open."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(ready))
            tasks.create_task(self._poll())

    async def _listen(self, ready: asyncio.Event) -> None:
        reader, writer = await self._ask("/v1/live")
        try:
            await reader.readuntil(b": hello\n\n")
            ready.set()
            # an event across two chunks is counted in the second
            rest = b""
            while chunk := await reader.read(CHUNK):
                seen = rest + chunk
                self.builds += seen.count(BUILD)
                rest = seen[-len(BUILD) + 1 :]
            raise RuntimeError("the feed ended")
        finally:
            writer.close()

    async def _poll(self) -> None:
        while True:
            builds = await self._answer("/v1/builds?limit=50")
            await self._answer("/v1/history")
            if builds["builds"]:
                await self._answer(f"/v1/builds/{builds['builds'][0]['build_id']}")
            await asyncio.sleep(POLL_SECONDS)

    async def _answer(self, path: str) -> dict[str, list[dict[str, str]]]:
        reader, writer = await self._ask(path, "Connection: close\r\n")
        try:
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        status = head.split(b" ", 2)[1]
        # of many builds a second, the one that was newest may be gone by now
        if status not in {b"200", b"404"}:
            raise RuntimeError(f"{path} was answered with {status.decode()}")
        reported: dict[str, list[dict[str, str]]] = json.loads(body)
        return reported

    async def _ask(
        self, path: str, more: str = ""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.address)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=CHUNK)
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Owner-Key: {self.owner}\r\n"
        writer.write(f"{head}{more}\r\n".encode())
        await writer.drain()
        return reader, writer


async def _turns(address: str, owner: str) -> None:
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        page, ready = Page(address, owner), asyncio.Event()
        showing = asyncio.create_task(page.show(ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({showing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        print("open" if ready.is_set() else "failed", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for task in (showing, waiting):
            task.cancel()
        await asyncio.wait([showing])
        # what failed in between is no page that looked on
        print(page.builds if showing.cancelled() else repr(showing.exception()), flush=True)


if __name__ == "__main__":
    asyncio.run(_turns(*json.loads(sys.stdin.readline())))
