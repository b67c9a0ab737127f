"""Commands that run until a signal ends them, and then leave nothing behind."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from service.adapters.embedded.binaries import find_server
from service.adapters.redis.bus import open_redis_bus
from service.cli.exits import Exit
from service.worker.client import open_client
from tests.bus_server import RealServer
from tests.e2e.commands import HUNG, Ctxb
from tests.support import lacking

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

#: A server of tools that says nothing, and ends neither when it is asked to nor with its input.
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("pid").write_text(str(os.getpid()))
while True:
    time.sleep(60)
"""


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RealServer]:
    """Give a server that a test may kill and start again."""
    binary = find_server()
    if binary is None:
        lacking("no server to kill")
    server = RealServer(binary, tmp_path / "server")
    server.start()
    yield server
    server.stop()


async def lines_until(process: Process, last: str) -> str:
    """Read what a command prints, up to a line that begins so."""
    assert process.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(HUNG):
        while not (said and said[-1].startswith(last)):
            line = await process.stdout.readline()
            assert line, "".join(said)
            said.append(line.decode())
    return "".join(said)


@pytest.mark.parametrize("options", [[], ["--in-memory"]])
async def test_the_demo_keeps_the_inspector_open(options: list[str], ctxb: Ctxb) -> None:
    """It links to a build that left messages out; builds are shown in full; Ctrl-C ends all."""
    process = await ctxb.start("demo", "--serve", *options)
    said = await lines_until(process, "Ctrl-C ends it.")

    link = r"(http://127\.0\.0\.1:\d+)/#/builds/(bld_[0-9a-f]{32})/ledger\?owner=(\S+)"
    found = re.search(link, said)
    assert found is not None
    address, first, owner = found.groups()
    # a build is listed a moment after its answer has gone out
    await asyncio.to_thread(heard, f"{address}/v1/live", owner, "demo-10")
    builds = await asyncio.to_thread(fetched, f"{address}/v1/builds", owner)
    assert builds["builds"][0]["request_id"] == "demo-10"
    assert len(builds["builds"]) >= 8
    assert {each["strategy"] for each in builds["builds"]} >= {"oldest_first", "relevance"}
    assert any(each["outcomes"].get("dropped") for each in builds["builds"])
    opened = await asyncio.to_thread(fetched, f"{address}/v1/builds/{first}", owner)
    assert "dropped" in {each["decision"] for each in opened["decisions"]}
    newest = builds["builds"][0]["build_id"]
    shown = await asyncio.to_thread(fetched, f"{address}/v1/builds/{newest}", owner)
    assert "feeds the cat" in json.dumps(shown["messages"])
    with await asyncio.to_thread(urlopen, address, timeout=HUNG) as page:
        assert page.headers.get_content_type() == "text/html"

    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(HUNG):
        out, err = await process.communicate()
    assert process.returncode == Exit.OK
    assert b"nothing is left behind" in out
    assert err == b""


def fetched(url: str, owner: str) -> dict[str, list[dict[str, Any]]]:
    """Return what an address of the HTTP interface answers."""
    with urlopen(Request(url, headers={"X-Owner-Key": owner}), timeout=HUNG) as answer:  # noqa: S310 - ours
        reported: dict[str, list[dict[str, Any]]] = json.load(answer)
        return reported


def heard(url: str, owner: str, request_id: str) -> None:
    """Wait until the live feed has reported the build of a request."""
    # an id of another process, to which all that is kept follows
    headers = {"X-Owner-Key": owner, "Last-Event-ID": "other.0"}
    end = time.monotonic() + HUNG
    with urlopen(Request(url, headers=headers), timeout=HUNG) as feed:  # noqa: S310 - ours
        for line in feed:
            key, _, value = line.partition(b": ")
            if key == b"data" and json.loads(value).get("request_id") == request_id:
                return
            assert time.monotonic() < end, f"the feed does not report {request_id}"
    raise AssertionError(f"the feed ended without {request_id}")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, Exit.STOPPED), (signal.SIGINT, Exit.INTERRUPTED)]
)
async def test_a_stubborn_server_of_tools_does_not_outlive_its_command(
    number: signal.Signals, code: Exit, ctxb: Ctxb
) -> None:
    """A command that gets a signal first ends what it has started."""
    server = {"name": "git", "command": sys.executable, "args": ["-c", STUBBORN]}
    pid_file = ctxb.folder / "pid"
    process = await ctxb.start("tools", "ls", CTXB_TOOLS__MCP=json.dumps([server]))
    async with asyncio.timeout(HUNG):
        while not (pid_file.is_file() and pid_file.read_text()):  # noqa: ASYNC110 - a process writes it
            await asyncio.sleep(0.02)

    process.send_signal(number)
    async with asyncio.timeout(HUNG):
        await process.wait()

    assert process.returncode == code
    assert not runs(int(pid_file.read_text()))


def asking(owner: str, **context: object) -> dict[str, object]:
    """Return a request of an owner, which needs no command of its own to be sent."""
    return {"owner_key": owner, "content": {"current_input": "Where were we?", "context": context}}


async def test_builds_are_followed_as_they_come(on_bus: Ctxb, server_url: str) -> None:
    """A line each, of the owner or the kind that is requested; SIGTERM or their number ends it."""
    async with on_bus.worker(), open_redis_bus(server_url) as bus, open_client(bus) as client:
        of_ana = await on_bus.start("tail", "--owner", "ana", "--json")
        failed = await on_bus.start("tail", "--failed", "--count", "1")
        assert of_ana.stdout is not None
        async with asyncio.timeout(HUNG):
            for each in (of_ana, failed):
                assert each.stderr is not None
                assert b"following" in await each.stderr.readline()
            for owner, tokens in (("bo", 8_000), ("ana", 8_000), ("bo", 99)):
                await client.send(asking(owner, max_tokens=tokens), timeout_seconds=HUNG)
            reported = json.loads(await of_ana.stdout.readline())
            of_ana.send_signal(signal.SIGTERM)
            rest, err = await of_ana.communicate()
            refused, _ = await failed.communicate()
    assert reported["kind"] == "built"
    assert reported["numbers"]["total"] > 0
    assert (rest, err, of_ana.returncode) == (b"", b"", Exit.OK)
    assert b"budget_exceeded" in refused
    assert failed.returncode == Exit.OK


async def test_what_there_is_can_be_watched(on_bus: Ctxb, server_url: str) -> None:
    """Streams, workers and the store, a line of JSON each time; Ctrl-C is a good end."""
    async with (
        on_bus.worker("--consumer", "w1") as worker,
        open_redis_bus(server_url) as bus,
        open_client(bus) as client,
    ):
        await client.send(asking("ana"), timeout_seconds=HUNG)
        process = await on_bus.start("stats", "--watch", "0.2", "--json")
        assert process.stdout is not None
        async with asyncio.timeout(HUNG):
            first, second = [json.loads(await process.stdout.readline()) for _ in range(2)]
            process.send_signal(signal.SIGINT)
            await process.communicate()
        tables = await on_bus("stats")
        assert await worker.stop() == Exit.OK
    assert (first["rate"], second["rate"]) == (None, 0.0)
    assert [each["name"] for each in second["bus"]["workers"]] == ["w1"]
    assert second["bus"]["requests"][0]["added"] == 1
    assert second["store"]["rows"] == 1
    assert process.returncode == Exit.OK
    assert "w1" in tables.stdout
    assert "store: 1 row of 1 owner," in tables.stdout


async def test_watching_goes_on_while_the_bus_is_away(ctxb: Ctxb, own_server: RealServer) -> None:
    """A line says why nothing is seen of it; the store is, and the bus is again when it is back."""
    options = {"CTXB_BUS__URL": own_server.url}
    assert (await ctxb("db", "upgrade")).code == Exit.OK
    process = await ctxb.start("stats", "--watch", "0.2", "--json", **options)
    assert process.stdout is not None

    async def seen(*, bus: bool) -> dict[str, Any]:
        assert process.stdout is not None
        while True:
            line: dict[str, Any] = json.loads(await process.stdout.readline())
            if (line["bus"] is not None) == bus:
                return line

    async with asyncio.timeout(HUNG):
        assert (await seen(bus=True))["away"] == {}
        own_server.kill()
        # the first look may have begun before it was killed
        _, during = [await seen(bus=False) for _ in range(2)]
        once = await ctxb("stats", **options)
        own_server.start()
        after = await seen(bus=True)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert list(during["away"]) == ["bus"]
    assert during["away"]["bus"].startswith(f"connect to 127.0.0.1:{own_server.port}: ")
    assert during["store"]["rows"] == 0
    assert (after["away"], after["store"]["rows"]) == ({}, 0)
    assert (process.returncode, err) == (Exit.OK, b"")
    assert once.code == Exit.UNREACHABLE


def runs(pid: int) -> bool:
    """Return whether there is a process that has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
