"""How the bus handles a server that is gone, frozen, full, flushed or started again."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from service.adapters.bus_options import BusOptions
from service.adapters.redis import pubsub as redis_pubsub
from service.adapters.redis.bus import open_redis_bus
from service.adapters.redis.driver import WritesRefusedError
from service.errors import BusError, ConfigError
from service.ports.bus import AnswerOutcome, Bus, Delivery
from service.wire.protocol import Topics
from tests.integration.bus_places import ASKED, SHORT, answer, holds, payloads, received, until
from tests.integration.conftest import StartServer

pytestmark = pytest.mark.integration

LOST = "bus.subscription_lost"


async def next_received(bus: Bus) -> list[Delivery]:
    """Read, across outages, until something comes."""

    async def attempt() -> list[Delivery]:
        try:
            return await bus.requests.receive(10, wait=1)
        except BusError:
            return []

    return await until(attempt)


async def test_flush_is_survived(server: StartServer) -> None:
    """After a flush the groups come back by themselves, and nothing raises."""
    running = server()
    async with open_redis_bus(running.url, BusOptions(lease_seconds=SHORT)) as bus:
        await bus.submit(b"1")
        deliveries = await received(bus)
        waiting = asyncio.create_task(bus.requests.receive(1, wait=30))
        with running.client() as client:
            await until(lambda: asyncio.to_thread(lambda: client.info()["blocked_clients"]))
            client.flushall()
        async with asyncio.timeout(60):
            assert await waiting == []

        inbox = bus.requests
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: inbox.renew(deliveries),
            lambda: inbox.release(deliveries),
            lambda: inbox.ack(deliveries),
            lambda: inbox.claim(1),
            lambda: inbox.dead_letter(deliveries[0], "flushed"),
            inbox.trim,
            inbox.leave,
        ]
        for call in calls:
            with running.client() as client:
                client.flushall()
            assert not await call()
            await bus.submit(b"2")
            assert payloads(await next_received(bus)) == [b"2"]


@pytest.mark.parametrize("group_is_back", [False, True])
async def test_flush_costs_no_answer(server: StartServer, group_is_back: bool) -> None:
    """A request that was flushed while it was built is answered all the same."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        await bus.submit(b"1")
        (delivery,) = await received(bus)
        with running.client() as client:
            client.flushall()
        if group_is_back:
            await bus.submit(b"2")
            assert payloads(await next_received(bus)) == [b"2"]

        for mode in ("unstored", "again", "first"):
            (receipt,) = await bus.finish([answer(delivery, mode=mode)])
            assert receipt.outcome == AnswerOutcome.SENT


async def test_group_that_cannot_be_created(server: StartServer) -> None:
    """A stream's name that is taken by something else is an error that names it, not a loop."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        with running.client() as client:
            client.set(Topics.CONTEXT_BUILD_REQUEST, "a text")

        with pytest.raises(BusError, match=rf"{Topics.CONTEXT_BUILD_REQUEST}: WRONGTYPE"):
            await received(bus)


async def test_flush_before_receive_is_survived(server: StartServer) -> None:
    """What was written after a flush and before the group was created again is received."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        await received(bus)
        with running.client() as client:
            client.flushall()
        await bus.submit(b"1")

        assert payloads(await next_received(bus)) == [b"1"]


async def test_restart_is_survived(server: StartServer) -> None:
    """A server that crashes and comes back finds its readers again, and logs that it was gone."""
    running = server()
    async with open_redis_bus(running.url) as bus, bus.subscribe_requests() as heard:
        await received(bus)
        running.kill()
        with pytest.raises(BusError):
            await bus.requests.receive(1, wait=1)
        running.start()

        await until(lambda: holds(bus.resubscribed == 1))
        await bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"1")
        async with asyncio.timeout(60):
            assert await anext(heard) == [b"1"]
        await bus.submit(b"2")
        assert payloads(await next_received(bus)) == [b"2"]


async def test_durable_server_keeps_everything(server: StartServer) -> None:
    """With a log of commands, entries and leases are there after a crash."""
    running = server(durable=True)
    options = BusOptions(lease_seconds=SHORT)
    async with open_redis_bus(running.url, options) as bus:
        await bus.submit(b"held")
        await received(bus)
        await bus.submit(b"unread")
        running.kill()
        running.start()

        assert payloads(await next_received(bus)) == [b"unread"]
        found: list[Delivery] = []
        async with asyncio.timeout(60):
            while b"held" not in payloads(found):
                found += await bus.requests.claim(10)


async def test_dead_server_is_a_bus_error(server: StartServer) -> None:
    """Every call says that the server is gone, soon, and in our words."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        await bus.submit(b"1")
        (delivery,) = await received(bus)
        running.stop()
        inbox = bus.requests
        calls: list[Coroutine[object, object, object]] = [
            inbox.receive(1, wait=0),
            inbox.claim(1),
            inbox.renew([delivery]),
            inbox.release([delivery]),
            inbox.ack([delivery]),
            inbox.dead_letter(delivery, "why"),
            inbox.trim(),
            inbox.leave(),
            bus.enqueue([b"1"]),
            bus.submit(b"1"),
            bus.find_results([ASKED]),
            bus.finish([answer(delivery)]),
            bus.publish("events", b"1"),
            bus.append("events", b"1"),
            bus.ping(),
            bus.subscribe_requests().__aenter__(),
            open_redis_bus(running.url).__aenter__(),
        ]

        results = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(result) for result in results] == [BusError] * len(calls)


async def test_frozen_server_is_a_bus_error(server: StartServer) -> None:
    """A server that accepts and does not answer costs the time limit, once."""
    running = server()
    async with open_redis_bus(running.url, BusOptions(socket_timeout_seconds=2)) as bus:
        await received(bus)
        with running.frozen():
            with pytest.raises(BusError):
                await bus.submit(b"1")
            with pytest.raises(BusError):
                await bus.requests.receive(1, wait=0.1)
        await bus.ping()


async def test_refusals_are_bus_errors(server: StartServer) -> None:
    """A server that is full or read-only is one that does not serve now."""
    running = server()
    async with open_redis_bus(running.url) as bus:
        await bus.submit(b"1")
        (delivery,) = await received(bus)
        with running.client() as client:
            client.config_set("maxmemory", 1)
            with pytest.raises(BusError, match="maxmemory"):
                await bus.submit(b"1")
            (full,) = await bus.finish([answer(delivery)])
            assert (full.outcome, type(full.error)) == (AnswerOutcome.FAILED, WritesRefusedError)
            client.config_set("maxmemory", 0)
            assert [each.outcome for each in await bus.finish([answer(delivery)])] == [
                AnswerOutcome.SENT
            ]
            client.replicaof("127.0.0.1", 1)
            with pytest.raises(BusError):
                await bus.submit(b"1")


async def test_nobody_there() -> None:
    """A bus without a server does not open, and says where it looked."""
    with pytest.raises(BusError, match=r"connect to 127\.0\.0\.1:1"):
        async with open_redis_bus("redis://127.0.0.1:1/0"):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "redis://host:port",
        "redis://h:99999",
        "redis://h?protocol=x",
        "redis://h?colour=blue",
        "redis://h/first",
        "redis://h/0/1",
        "redis://user:sesame/open@h:6379/0",
        "redis://user:12/sesame@h:6379/0",
        "rediss://user:sesame@h/0?ssl_cert_reqs=x",
    ],
)
async def test_bad_url_is_a_mistake_of_configuration(url: str) -> None:
    """A URL that cannot be read is distinguished from a server that is not there, and not shown."""
    with pytest.raises(ConfigError, match=r"^bus\.url: ") as raised:
        async with open_redis_bus(url):
            pass
    assert "sesame" not in raised.value.detail
    assert raised.value.__cause__ is None or "sesame" not in str(raised.value.__cause__)


async def test_unix_socket(server: StartServer, prefix: str) -> None:
    """A server may be reached over a socket in the file system."""
    running = server(durable=True)
    socket = running.socket
    async with open_redis_bus(f"unix://{quote(str(socket))}", BusOptions(prefix=prefix)) as bus:
        await bus.submit(b"1")
        async with bus.subscribe_requests():
            assert payloads(await received(bus)) == [b"1"]


async def test_lost_subscription_is_counted(server: StartServer) -> None:
    """A subscriber that the server cuts off comes back, and says that it was away."""
    running = server()
    async with open_redis_bus(running.url) as bus, bus.subscribe_requests() as heard:
        with running.client() as client:
            assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1

        await until(lambda: holds(bus.resubscribed == 1))
        assert await bus.publish(Topics.CONTEXT_BUILD_REQUEST, b"1") == 1
        async with asyncio.timeout(60):
            assert await anext(heard) == [b"1"]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_silent_server_is_noticed(
    server: StartServer, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    """A quiet channel stays subscribed while the server answers, and not when it does not."""
    monkeypatch.setattr(redis_pubsub, "QUIET_SECONDS", 1.0)
    running = server()

    def pings() -> int:
        with running.client() as client:
            return int(client.info("commandstats")["cmdstat_ping"]["calls"])

    async with (
        open_redis_bus(f"{running.url}?protocol={protocol}") as bus,
        bus.subscribe_requests(),
    ):
        before = pings()
        await until(lambda: asyncio.to_thread(lambda: pings() > before + 1))
        assert bus.resubscribed == 0
        with capture_logs() as lines, running.frozen():
            await until(lambda: holds(any(each["event"] == LOST for each in lines)))
        await until(lambda: holds(bus.resubscribed >= 1))
