"""A worker process that serves over HTTP, or is asked how it is."""

import asyncio
import json
import sqlite3
from contextlib import closing

import httpx2
import pytest

from tests.e2e.commands import HUNG, Ctxb, RunningWorker
from tests.probing import asked, measured
from tests.serving import TOKEN, asking

pytestmark = pytest.mark.e2e


def address_of(worker: RunningWorker, what: str) -> str:
    """Return where a worker says that it serves, or can be asked how it is."""
    (line,) = (json.loads(line) for line in worker.said if f"{what}.listening" in line)
    return str(line["address"])


@pytest.mark.slow
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
            base_url=address_of(worker, "http"), headers=own, trust_env=False, timeout=HUNG
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


async def test_a_worker_that_drains_is_alive_and_not_ready(on_bus: Ctxb) -> None:
    """From SIGTERM on no more is sent its way, but it is left to finish what it has begun."""
    async with on_bus.worker() as worker:
        address = address_of(worker, "health")
        assert (await asked(f"{address}/readyz"))[0] == 200
        with closing(sqlite3.connect(on_bus.folder / "ctxb.db", isolation_level=None)) as database:
            # the input of a request can't be recorded while another has the database
            database.execute("begin immediate")
            sending = asyncio.create_task(on_bus("send", "-o", "ana", "-i", "Hello"))
            async with asyncio.timeout(HUNG):
                while (await measured(address))("build_in_flight") != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            worker.process.terminate()
            async with asyncio.timeout(HUNG):
                while (ready := await asked(f"{address}/readyz"))[0] != 503:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            alive = await asked(f"{address}/livez")
            assert worker.process.returncode is None
            database.execute("rollback")
        sent = await sending
        async with asyncio.timeout(HUNG):
            assert await worker.process.wait() == 0

    assert ready[1]["checks"][0] == {"name": "worker", "ok": False, "detail": "stopping"}
    assert alive[0] == 200
    assert sent.code == 0, sent.stderr
