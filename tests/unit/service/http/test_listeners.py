"""How many listen to the live feed, whatever they do meanwhile."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from service.http.interface import make_app
from tests.calling import services
from tests.support import MakeBuilder


@pytest.fixture
async def app(make_builder: MakeBuilder) -> ASGIApp:
    """Return the application, in which one may listen."""
    return make_app(services(make_builder(), "redacted"))


@dataclass
class Listener:
    """A client of the feed that reads only when a test lets it."""

    takes: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    #: The status of the answer that is being sent.
    status: asyncio.Future[int] = field(default_factory=asyncio.Future)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, message: Message) -> None:
        """Take what is sent."""
        if message["type"] == "http.response.start":
            self.status.set_result(message["status"])
            await self.takes.wait()
        else:
            self.heard.set()

    async def receive(self) -> Message:
        """Return when it has gone."""
        await self.gone.wait()
        return {"type": "http.disconnect"}

    def ask(self, app: ASGIApp) -> asyncio.Task[None]:
        """Begin to ask."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "GET",
            "path": "/v1/live",
            "raw_path": b"/v1/live",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"x-owner-key", b"ana")],
        }
        return asyncio.create_task(_asked(app, scope, self))


async def _asked(app: ASGIApp, scope: dict[str, Any], listener: Listener) -> None:
    await app(scope, listener.receive, listener.send)


async def test_who_comes_while_another_is_let_in_is_counted_with_him(app: ASGIApp) -> None:
    """A place is taken before the answer begins, however long that takes."""
    first, second = Listener(), Listener()
    second.takes.set()
    asked = first.ask(app)
    assert await first.status == 200
    refused = second.ask(app)

    assert await second.status == 429
    await refused
    first.takes.set()
    await first.heard.wait()
    first.gone.set()
    await asked


@pytest.mark.parametrize("heard", [False, True])
async def test_who_goes_makes_room_at_once(app: ASGIApp, heard: bool) -> None:
    """Whether anything has come by then or not."""
    for _ in range(3):
        listener = Listener()
        asked = listener.ask(app)
        assert await listener.status == 200
        if heard:
            listener.takes.set()
            await listener.heard.wait()
        listener.gone.set()
        await asked


async def test_a_listener_whose_task_is_cancelled_makes_room(app: ASGIApp) -> None:
    """As where the worker ends, or its server gives up the connection."""
    for _ in range(3):
        listener = Listener()
        asked = listener.ask(app)
        assert await listener.status == 200
        asked.cancel()
        await asyncio.wait([asked])
