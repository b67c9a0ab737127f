"""A worker on a bus in memory, with its HTTP interface on a free port, and somebody who asks it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from service.app import connect_client, make_worker, open_builder, open_bus
from service.builder import ContextBuilder
from service.config.endpoints import HttpSettings
from service.config.settings import BusSettings, Settings
from service.http.interface import Served, open_http
from service.ports.bus import Bus
from service.wire.protocol import Topics
from service.worker.runner import Worker
from tests.support import row

#: Sixteen characters at least.
TOKEN = "a-token-for-these-tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a test of the interface has in hand."""

    bus: Bus
    builder: ContextBuilder
    served: Served
    http: httpx2.AsyncClient
    stop: asyncio.Event

    async def get(self, path: str, owner: str = "ana", **headers: str) -> httpx2.Response:
        """Ask for something of an owner."""
        return await self.http.get(path, headers={"X-Owner-Key": quote(owner, safe=""), **headers})

    async def post(self, path: str, body: object, owner: str = "ana") -> httpx2.Response:
        """Send something of an owner."""
        return await self.http.post(path, json=body, headers={"X-Owner-Key": quote(owner, safe="")})

    async def built(self, owner: str = "ana", **fields: Any) -> dict[str, Any]:
        """Build, and return the content of the response when the build can be seen."""
        last = self.served.recent.last
        response = await self.http.post("/v1/build", json=asking(owner_key=owner, **fields))
        content: dict[str, Any] = response.json()["content"]
        assert response.status_code == 200, content
        async with asyncio.timeout(60):
            while self.served.recent.last == last:
                await self.served.recent.wait(30)
        return content

    async def remember(self, rows: int = 6, owner: str = "ana") -> None:
        """Store a history of n rows."""
        said = [row(n, "ai" if n % 2 else "human", f"Secret number {n}.") for n in range(rows)]
        await self.builder.history.append(owner, said)


@asynccontextmanager
async def serving(
    http: dict[str, Any] | None = None, *, works: bool = True, **sections: Any
) -> AsyncIterator[Scene]:
    """Serve while the context lasts; ``http`` are settings of the interface.

    Where it doesn't work, requests are taken and nobody builds them.
    """
    settings = Settings(
        bus=BusSettings(url="memory://"),
        http=HttpSettings(**{"port": 0, **(http or {})}),
        **sections,
    )
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        bus = (await enter(open_bus(settings))).bus
        builder = await enter(open_builder(settings))
        client = await enter(connect_client(settings, bus))
        served = await enter(open_http(0, bus, builder, client.exchange))
        # a proxy of the environment doesn't reach our own addresses
        asks = httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=60)
        scene = Scene(
            bus=bus, builder=builder, served=served, http=await enter(asks), stop=asyncio.Event()
        )
        if works:
            worker = make_worker(bus, builder, served.recent)
            await enter(working(worker, bus, scene.stop))
        yield scene


@asynccontextmanager
async def working(worker: Worker, bus: Bus, stop: asyncio.Event) -> AsyncIterator[None]:
    """Let a worker work; it listens when the context is entered, and is stopped at its end."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run(stop))
        async with asyncio.timeout(60):
            while not await bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"ping"):  # noqa: ASYNC110
                await asyncio.sleep(0)
        try:
            yield
        finally:
            stop.set()


def asking(**fields: Any) -> dict[str, Any]:
    """Return a request."""
    return {"owner_key": "ana", "content": {"current_input": "Hello"}, **fields}
