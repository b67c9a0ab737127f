"""How a worker bears a server that answers and takes nothing: full, a replica, unsaved, loading."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import redis
import redis.asyncio as redis_async
from redis.exceptions import BusyLoadingError
from structlog.testing import capture_logs

from service.ports.bus import Bus, Depth
from tests.bus_server import RealServer
from tests.integration.bus_places import RedisPlace, holds, until
from tests.integration.conftest import StartServer
from tests.integration.test_worker import Crew, Gate, asking, open_crew

pytestmark = pytest.mark.integration

#: Requests that are in work when the server closes.
REQUESTS = 3
#: Refusals that a test waits for, and those that are too many by then: with growing pauses, each
#: loop of the worker has made one or two more; without pauses it would be thousands.
REFUSALS, TOO_MANY = 6, 60


def fill(server: RealServer, client: redis.Redis) -> None:
    """Leave no room."""
    client.config_set("maxmemory", 1)


def empty(server: RealServer, client: redis.Redis) -> None:
    """Make room."""
    client.config_set("maxmemory", 0)


def follow(server: RealServer, client: redis.Redis) -> None:
    """Make it the replica of nobody who is there."""
    client.replicaof("127.0.0.1", 1)


def lead(server: RealServer, client: redis.Redis) -> None:
    """Let it take writes again."""
    client.replicaof("NO", "ONE")


def spoil(server: RealServer, client: redis.Redis) -> None:
    """Let it fail to save its data."""
    server.snapshot.mkdir()
    client.config_set("save", "3600 1000000")
    client.bgsave()
    while client.info("persistence")["rdb_last_bgsave_status"] != "err":
        pass


def mend(server: RealServer, client: redis.Redis) -> None:
    """Let it save its data."""
    server.snapshot.rmdir()
    client.bgsave()


def loops(logged: Sequence[MutableMapping[str, Any]], event: str) -> set[str]:
    """Return the loops that logged an event."""
    return {line["loop"] for line in logged if line["event"] == event}


Change = Callable[[RealServer, redis.Redis], None]


@pytest.mark.parametrize(
    ("code", "close", "reopen"),
    [("OOM", fill, empty), ("READONLY", follow, lead), ("MISCONF", spoil, mend)],
)
async def test_worker_waits_for_a_closed_server(
    server: StartServer, prefix: str, code: str, close: Change, reopen: Change
) -> None:
    """It tries now and then, says so once, and answers every request once when it may."""
    running = server()
    with running.client() as client:

        def refusals() -> int:
            said = client.info("errorstats").get(f"errorstat_{code}", {})
            return int(said.get("count", 0))

        async with working(running, prefix) as (crew, gate):
            sent = [
                asyncio.create_task(crew.client.send(asking(id=f"m{n}"))) for n in range(REQUESTS)
            ]
            await until(lambda: in_work(crew.bus, REQUESTS))
            with capture_logs() as logged:
                close(running, client)
                gate.open.set()
                await until(lambda: holds(refusals() >= REFUSALS))
                # others may have been refused so often before it sends anything
                await until(lambda: holds("sender" in loops(logged, "loop.interrupted")))
                assert refusals() < TOO_MANY
                reopen(running, client)
                responses = await asyncio.gather(*sent)
                await until(lambda: in_work(crew.bus, 0))
                # it logs after the server has its answers
                await until(lambda: holds("sender" in loops(logged, "loop.resumed")))
            assert (await crew.client.send(asking(id="after"))).content.status == "success"

    assert [response.content.status for response in responses] == ["success"] * REQUESTS
    reported = Counter(
        (line["loop"], line["error"]) for line in logged if line["event"] == "loop.interrupted"
    )
    assert reported
    assert set(reported.values()) == {1}


async def test_worker_waits_for_a_loading_server(server: StartServer, prefix: str) -> None:
    """A server that is started again and reads its data is away for so long, and no longer."""
    slowly = (
        "key-load-delay 50000",
        "rdbcompression no",
        "loading-process-events-interval-bytes 1024",
    )
    running = server(durable=True, more=slowly)
    with running.client() as client:
        for number in range(8):
            client.set(f"ballast-{number}", b"x" * 4096)
        # in this form it is read with a look at the clients now and then
        client.bgrewriteaof()
        await until(lambda: asyncio.to_thread(rewritten, client))
        async with working(running, prefix) as (crew, gate):
            metadata = {"reply_to": "context.reply.list", "reply_kind": "list"}
            request = asking(id="m1", metadata={**metadata, "timeout_ms": 60_000})
            await crew.bus.submit(json.dumps(request).encode())
            await until(lambda: in_work(crew.bus, 1))
            running.kill()
            started = asyncio.create_task(asyncio.to_thread(running.start))
            await until(lambda: asyncio.to_thread(loading, client))
            gate.open.set()
            await started
            reply = await until(
                lambda: asyncio.to_thread(client.lrange, "context.reply.list", 0, -1)
            )
            await until(lambda: in_work(crew.bus, 0))

    assert [json.loads(each)["content"]["status"] for each in reply] == ["success"]


def rewritten(client: redis.Redis) -> bool:
    """Return whether a server has rewritten its log of commands."""
    facts = client.info("persistence")
    return not facts["aof_rewrite_in_progress"] and not facts["aof_rewrite_scheduled"]


def loading(client: redis.Redis) -> bool:
    """Say whether a server reads its data."""
    try:
        client.ping()
    except BusyLoadingError:
        return True
    except redis.RedisError:
        return False
    return False


@asynccontextmanager
async def working(running: RealServer, prefix: str) -> AsyncIterator[tuple[Crew, Gate]]:
    """Run a worker on a server of its own, whose builds wait at a gate."""
    async with (
        AsyncExitStack() as stack,
        redis_async.Redis.from_url(running.url) as client,
        open_crew(RedisPlace(stack, running.url, prefix, client)) as crew,
    ):
        gate = Gate()
        await crew.hire(gate.joined(crew.builder))
        yield crew, gate


async def in_work(bus: Bus, count: int) -> bool:
    """Return whether n requests are in work, and none waits."""
    depth: Depth = await bus.requests.depth()
    return (depth.lag, depth.pending) == (0, count)
