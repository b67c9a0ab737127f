"""A worker process that serves over HTTP, on a real bus and a store in a file."""

import asyncio
import json

import httpx2
import pytest

from tests.e2e.commands import HUNG, Ctxb, RunningWorker
from tests.serving import TOKEN, asking

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def address_of(worker: RunningWorker) -> str:
    """Return where a worker says that it serves."""
    (line,) = (json.loads(line) for line in worker.said if "http.listening" in line)
    return str(line["address"])


async def test_a_worker_serves_until_it_is_stopped(on_bus: Ctxb) -> None:
    """With the token of its settings; who listens to the feed doesn't hold its end up.

    An owner who is erased with the command is shown no more, though the worker goes on.
    """
    variables = {"CTXB_HTTP__PORT": "0", "CTXB_HTTP__TOKEN": TOKEN}
    own = {"Authorization": f"Bearer {TOKEN}", "X-Owner-Key": "ana"}
    serving = Ctxb(on_bus.folder, {**on_bus.environment, **variables})
    async with (
        serving.worker() as worker,
        httpx2.AsyncClient(
            base_url=address_of(worker), headers=own, trust_env=False, timeout=HUNG
        ) as http,
        http.stream("GET", "/v1/live") as live,
    ):
        lines = live.aiter_lines()
        while await anext(lines) != ": hello":
            pass
        built = await http.post("/v1/build", json=asking())
        while not (line := await anext(lines)).startswith("data: "):
            pass
        name = built.json()["content"]["build_id"]
        assert json.loads(line.removeprefix("data: "))["build_id"] == name
        assert (await http.get(f"/v1/builds/{name}")).json()["content"] == "redacted"
        erased = await on_bus("history", "rm", "ana", "--yes")
        assert (await http.get(f"/v1/builds/{name}")).status_code == 404
        worker.process.terminate()
        assert [line async for line in lines if line not in ("", ": ping")] == []
        async with asyncio.timeout(HUNG):
            assert await worker.process.wait() == 0

    assert erased.code == 0, erased.stderr
