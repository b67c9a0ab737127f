"""Commands that go on until they are told to end, and what they leave behind then: nothing."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from service.cli.exits import Exit
from tests.e2e.commands import HUNG, Ctxb

pytestmark = pytest.mark.e2e

#: A server of tools that says nothing, and ends neither when it is asked to nor with its input.
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("pid").write_text(str(os.getpid()))
while True:
    time.sleep(60)
"""


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
    """It says where it is, with the owner; there its builds are shown in full; Ctrl-C ends all."""
    process = await ctxb.start("demo", "--serve", *options)
    said = await lines_until(process, "Ctrl-C ends it.")

    found = re.search(r"(http://127\.0\.0\.1:\d+)/#/builds\?owner=(\S+)", said)
    assert found is not None
    address, owner = found.groups()
    builds = await asyncio.to_thread(fetched, f"{address}/v1/builds", owner)
    assert len(builds["builds"]) >= 8
    assert {each["strategy"] for each in builds["builds"]} >= {"oldest_first", "relevance"}
    assert any(each["dropped"] for each in builds["builds"])
    newest = builds["builds"][0]["build_id"]
    shown = await asyncio.to_thread(fetched, f"{address}/v1/builds/{newest}", owner)
    assert "feeds the cat" in json.dumps(shown["messages"])

    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(HUNG):
        out, err = await process.communicate()
    assert process.returncode == Exit.OK
    assert b"nothing is left behind" in out
    assert err == b""


def fetched(url: str, owner: str) -> dict[str, list[dict[str, object]]]:
    """Return what an address of the HTTP interface answers."""
    with urlopen(Request(url, headers={"X-Owner-Key": owner}), timeout=HUNG) as answer:  # noqa: S310 - ours
        told: dict[str, list[dict[str, object]]] = json.load(answer)
        return told


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, Exit.STOPPED), (signal.SIGINT, Exit.INTERRUPTED)]
)
async def test_a_stubborn_server_of_tools_does_not_outlive_its_command(
    number: signal.Signals, code: Exit, ctxb: Ctxb
) -> None:
    """A command that is told to end ends first what it has started."""
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


def runs(pid: int) -> bool:
    """Tell whether there is a process that has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
