"""The command line as people and orchestrators of containers use it."""

import asyncio
import json
import os
import re
import signal
import sys
from typing import Any

import pytest
from redis.asyncio import Redis

from service.adapters.redis.bus import open_redis_bus
from service.wire.response import BuildSuccess
from service.worker.client import ContextClient, open_client
from tests.e2e.commands import HUNG, Ctxb

pytestmark = pytest.mark.e2e

#: Packages that only running a command may load: drivers, servers, tokenizers.
DRIVERS = {
    *("alembic", "anyio", "mcp", "openai", "prometheus_client", "redis", "sqlalchemy"),
    *("starlette", "tiktoken", "uvicorn"),
}
#: Packages that the list of commands doesn't load either.
ENGINE = {
    "pydantic",
    "structlog",
    "service.app",
    "service.config.settings",
    "service.wire.protocol",
}

REQUESTS = 100


def asked(owner: str = "ana") -> dict[str, Any]:
    """Return a request."""
    return {"owner_key": owner, "content": {"current_input": "Hello"}}


#: Shows the help of commands one after the other, and prints the modules that each one loads.
HELP = """
import sys
from service.cli import main
for name in sys.stdin.read().split("\\n"):
    sys.argv = ["ctxb", *name.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        print(end.code, *sys.modules, file=sys.stderr)
"""


async def test_help_is_light(ctxb: Ctxb) -> None:
    """The list of commands loads none of them; the help of one loads no driver."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HELP),
        cwd=ctxb.folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    names = ["", "worker", "build", "send", "demo", "history", "tools", "config", "db"]
    out, err = await process.communicate("\n".join(names).encode())
    for name, line in zip(names, err.decode().splitlines(), strict=True):
        code, *loaded = line.split()
        assert (name, code) == (name, "0")
        assert f"Usage: ctxb {name}".rstrip() in out.decode()
        assert not (DRIVERS if name else DRIVERS | ENGINE) & set(loaded)


async def test_the_probe_imports_next_to_nothing(ctxb: Ctxb) -> None:
    """A probe is answered without typer, rich or anything of the service's engine."""
    (ctxb.folder / "beat").touch()
    script = (
        "import sys\nfrom service.cli import main\n"
        "sys.argv = ['ctxb', 'healthcheck', '--file', 'beat']\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules)\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), cwd=ctxb.folder, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    loaded = {name for name in out.decode().split() if name.startswith("service")}
    assert loaded == {"service", "service.cli", "service.cli.healthcheck"}
    assert not {"typer", "rich", "asyncio", *DRIVERS, *ENGINE} & set(out.decode().split())


async def test_the_demo_shows_every_outcome(ctxb: Ctxb) -> None:
    """The demo runs to its end on a real bus, shows what can be, and leaves nothing behind."""
    ended = await ctxb("demo")
    assert (ended.code, ended.stderr) == (0, "")
    process = re.search(r"worker: process (\d+)", " ".join(ended.stdout.split()))
    assert process is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(process[1]), 0)
    for shown in (
        "[SHARED_MEMORY count=20]",
        "FRIENDS_INFO",
        "dropped",
        "budget_exceeded: ",
        "invalid_request: /content/context/memory_limit",
        "The same response, not built again",
        "To try next",
    ):
        assert shown in ended.stdout
    tables = [line for line in ended.stdout.splitlines() if line.startswith((" ", "─"))]
    steps = [line for line in tables if line.startswith("  ")]
    assert max(len(line) for line in tables if line not in steps) <= 80
    assert "\x1b" not in ended.stdout
    assert not list(ctxb.folder.iterdir())


async def test_workers_without_a_bus_share_a_server(ctxb: Ctxb) -> None:
    """The second joins the first; `send` finds both, and a stale variable is named.

    Others reach them by the URL that the first prints. Ctrl-C ends a worker as SIGTERM does.
    """
    async with ctxb.worker() as first, ctxb.worker() as second:
        assert any("bus: a server of its own" in line for line in first.said)
        assert (
            "bus: the server of another worker (.ctxb/bus.url), which ends with that worker\n"
            in second.said
        )
        sent = await ctxb("send", "--owner", "ana", "--input", "Hello")
        assert sent.stdout.startswith("success in "), sent.stderr
        stale = await ctxb("send", "-o", "a", "-i", "Hi", CTXB_BUS__URL="redis://127.0.0.1:1/0")
        assert stale.code == 5
        assert "from CTXB_BUS__URL, and a worker here has another one" in stale.stderr
        url = next(word for line in first.said for word in line.split() if "redis://" in word)
        url = url.removeprefix("CTXB_BUS__URL=")
        async with open_redis_bus(url) as bus, open_client(bus) as client:
            assert (await client.build(asked(), timeout_seconds=HUNG)).status == "success"
        second.process.send_signal(signal.SIGINT)
        assert await second.process.wait() == 0
        assert await first.stop() == 0
    gone = await ctxb("send", "--owner", "ana", "--input", "Hello")
    assert gone.code == 3


async def test_a_worker_answers_and_stops(on_bus: Ctxb) -> None:
    """`send` gets a worker's answer over either way in; SIGTERM ends the worker with 0."""
    async with on_bus.worker("--heartbeat-file", "beat", "--consumer", "w1") as worker:
        stream = await on_bus("send", "--owner", "ana", "--input", "Hello")
        assert stream.code == 0, stream.stderr
        assert stream.stdout.startswith("success in ")
        channel = await on_bus("send", "-o", "ana", "-i", "Hello", "--via", "channel", "--json")
        assert json.loads(channel.stdout)["content"]["status"] == "success"
        tight = await on_bus("send", "-o", "ana", "-i", "Hello", "--max-tokens", "99")
        assert tight.code == 6
        assert "budget_exceeded: " in tight.stderr
        assert (await on_bus("healthcheck", "--file", "beat")).code == 0
        assert await worker.stop() == 0
    assert "worker.stopped" in worker.said[-1]


@pytest.mark.slow
async def test_stopping_under_load_loses_nothing(on_bus: Ctxb, server_url: str) -> None:
    """A worker stopped amid requests ends with 0, and another one answers what it left."""

    async def ask(client: ContextClient, number: int) -> BuildSuccess:
        return await client.build(asked(f"o{number}"), timeout_seconds=HUNG)

    async with open_redis_bus(server_url) as bus, open_client(bus) as client:
        async with on_bus.worker() as worker:
            asking = [asyncio.create_task(ask(client, number)) for number in range(REQUESTS)]
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            assert await worker.stop() == 0
        async with on_bus.worker():
            answers = await asyncio.gather(*asking)
    assert len({answer.build_id for answer in answers}) == REQUESTS


@pytest.mark.slow
async def test_a_worker_whose_streams_are_closed_runs(on_bus: Ctxb, server_url: str) -> None:
    """It answers and stops as any other; what it says is lost, not sent to the bus."""
    worker = await asyncio.create_subprocess_exec(
        *(
            "sh",
            "-c",
            'exec "$@" <&- >&- 2>&-',
            "sh",
            sys.executable,
            "-m",
            "service.cli",
            "worker",
        ),
        cwd=on_bus.folder,
        env=on_bus.environment,
    )
    try:
        async with open_redis_bus(server_url) as bus, open_client(bus) as client:
            assert (await client.build(asked(), timeout_seconds=HUNG)).status == "success"
        worker.terminate()
        async with asyncio.timeout(HUNG):
            assert await worker.wait() == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


async def test_a_command_whose_stderr_is_closed_prints_its_result(ctxb: Ctxb) -> None:
    """Only output to stderr is lost."""
    process = await asyncio.create_subprocess_exec(
        *(
            "sh",
            "-c",
            'exec "$@" 2>&-',
            "sh",
            sys.executable,
            "-m",
            "service.cli",
            "config",
            "show",
        ),
        cwd=ctxb.folder,
        env=ctxb.environment,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert out == (await ctxb("config", "show")).stdout.encode()


async def test_waiting_can_be_interrupted(on_bus: Ctxb, server_url: str) -> None:
    """Ctrl-C ends a command that waits, with 130 and without a traceback."""
    async with asyncio.timeout(HUNG), Redis.from_url(server_url) as client:
        sending = await on_bus.start("send", "-o", "ana", "-i", "Hello", "--timeout", "300")
        await _idle_after_sending(client)
        sending.send_signal(signal.SIGINT)
        _, err = await sending.communicate()
    assert (sending.returncode, err) == (130, b"")


async def test_configuration_errors_have_their_place(ctxb: Ctxb) -> None:
    """A wrong setting stops every command with 3, and is named with its line."""
    (ctxb.folder / "config.yml").write_text("bus:\n  urll: x\n")
    ended = await ctxb("worker")
    assert (ended.code, ended.stdout) == (3, "")
    assert "config.yml:2:3  bus.urll: unknown key; did you mean bus.url?" in ended.stderr


async def _idle_after_sending(client: Redis) -> None:
    """Wait for a connection that does nothing after XADD.

    Python 3.11 loses a cancellation that comes while redis-py is still writing.
    """
    while True:
        connections = await client.client_list()
        if any(each["cmd"] == "xadd" and int(each["idle"]) for each in connections):
            return
        await asyncio.sleep(0.05)
