"""A worker process, asked over HTTP how it is."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.commands import HUNG, Ctxb, RunningWorker
from tests.probing import asked, measured

pytestmark = pytest.mark.e2e


def address_of(worker: RunningWorker) -> str:
    """Return where a worker says that it can be asked."""
    (line,) = (json.loads(line) for line in worker.said if "health.listening" in line)
    return str(line["address"])


async def test_a_worker_that_drains_is_alive_and_not_ready(on_bus: Ctxb) -> None:
    """From SIGTERM on no more is sent its way, but it is left to finish what it has begun."""
    async with on_bus.worker() as worker:
        address = address_of(worker)
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
