import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from service.adapters.redis import pubsub as redis_pubsub
from service.adapters.redis.pubsub import Subscription, following
from service.adapters.redis.servers import Servers
from service.errors import BusError

SUBSCRIBED = {"type": "subscribe", "data": 1}


class ScriptedServer:
    """A server that says what a test lets it say, over one connection after the other."""

    def __init__(self, *connections: Sequence[object]) -> None:
        self._connections = [list(connection) for connection in connections]
        self._says: list[Any] = []
        self.pings = 0

    def pubsub(self, _channel: str, _attempt: int) -> "ScriptedServer":
        """Open the next connection."""
        self._says = self._connections.pop(0)
        return self

    async def __aenter__(self) -> "ScriptedServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._says = []

    async def subscribe(self, _channel: str) -> None:
        """Accept any channel."""

    async def ping(self) -> None:
        """Count, and leave the answer to the script."""
        self.pings += 1

    async def get_message(self, **_: float) -> Any:
        """Say the next thing, or nothing more."""
        if not self._says:
            await asyncio.Event().wait()
        said = self._says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


def subscription(server: ScriptedServer) -> Subscription:
    """Follow a channel of a scripted server."""
    return Subscription(cast("Servers", server), "requests")


def message(payload: bytes) -> dict[str, object]:
    """Say something on the channel."""
    return {"type": "message", "data": payload}


async def test_lost_connection_is_replaced_and_counted() -> None:
    """After a lost connection the channel is subscribed again, and what follows is heard."""
    server = ScriptedServer(
        [SUBSCRIBED, message(b"1"), RedisConnectionError("reset")],
        [OSError("refused")],
        [SUBSCRIBED, message(b"2")],
    )
    followed = subscription(server)

    async with following(followed, confirm_seconds=5):
        assert await followed.arrivals.take(1) == [b"1"]
        assert await followed.arrivals.take(1) == [b"2"]
    assert followed.resubscribed == 1


async def test_an_outage_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason of an outage is logged once, however often it is tried; the next one again."""
    monkeypatch.setattr(redis_pubsub, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(redis_pubsub, "LONGEST_PAUSE_SECONDS", 0.001)
    refused = [OSError("refused")]
    server = ScriptedServer(
        [SUBSCRIBED, RedisConnectionError("reset")],
        *[refused] * 5,
        [SUBSCRIBED, *refused],
        *[refused] * 5,
        [SUBSCRIBED, message(b"1")],
    )
    followed = subscription(server)

    with capture_logs() as logs:
        async with following(followed, confirm_seconds=5):
            assert await followed.arrivals.take(1) == [b"1"]

    reported = [each["reason"] for each in logs if each["event"] == "bus.subscription_lost"]
    assert reported == ["reset", "refused", "refused"]


async def test_quiet_server_is_asked() -> None:
    """A server that answers when asked is kept; one that does not is left for a new connection."""
    server = ScriptedServer(
        [SUBSCRIBED, None, {"type": "pong", "data": b""}, message(b"1"), None, None],
        [SUBSCRIBED, message(b"2")],
    )
    followed = subscription(server)

    async with following(followed, confirm_seconds=5):
        assert await followed.arrivals.take(1) == [b"1"]
        assert await followed.arrivals.take(1) == [b"2"]
    assert (server.pings, followed.resubscribed) == (2, 1)


async def test_unconfirmed_subscription_is_not_entered() -> None:
    """Where the server does not confirm in time, the context is not entered."""
    followed = subscription(ScriptedServer([]))

    with pytest.raises(BusError, match="did not confirm"):
        async with following(followed, confirm_seconds=0.01):
            pass


async def test_fault_in_the_reader_reaches_the_listener() -> None:
    """A reader that breaks off by a fault does not leave its listener waiting."""
    followed = subscription(ScriptedServer([SUBSCRIBED, RuntimeError("a fault")]))

    async with following(followed, confirm_seconds=5):
        with pytest.raises(BusError) as caught:
            await followed.arrivals.take(1)
    assert isinstance(caught.value.__cause__, RuntimeError)
