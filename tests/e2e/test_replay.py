"""A build that a worker made, repeated with the real command on a real server."""

import json
import sqlite3
from typing import Any

import pytest

from service.cli.exits import Exit
from tests.e2e.commands import Ctxb

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def remembered(on_bus: Ctxb) -> None:
    """Have the history of ana hold two rows."""
    rows = [
        {"id": "old_1", "role": "HUMAN", "content": "The boat is red.", "run_id": "r1"},
        {"id": "old_2", "role": "AI", "content": "I'll remember.", "run_id": "r1"},
    ]
    lines = "\n".join(map(json.dumps, rows))
    stored = await on_bus("history", "import", "-", "--owner", "ana", stdin=lines)
    assert stored.code == Exit.OK, stored.stderr


async def test_a_build_is_repeated_until_its_rows_change(on_bus: Ctxb) -> None:
    """What a worker answered comes out again alike; then a row is erased, and that is told."""
    await remembered(on_bus)
    async with on_bus.worker() as worker:
        sent = await on_bus("send", "--owner", "ana", "--input", "Which colour?", "--json")
        assert sent.code == Exit.OK, sent.stderr
        assert await worker.stop() == Exit.OK
    build_id = json.loads(sent.stdout)["content"]["build_id"]

    same = await on_bus("replay", build_id)
    assert (same.code, same.stderr) == (Exit.OK, "")
    assert same.stdout.startswith(f"identical: {build_id}")

    with sqlite3.connect(on_bus.folder / "ctxb.db") as database:
        database.execute("DELETE FROM messages WHERE id = 'old_2'")
    database.close()
    other = await on_bus("replay", build_id, "--json")
    found: dict[str, Any] = json.loads(other.stdout)
    assert other.code == Exit.DIFFERENT
    assert found["rows"]["removed"] == ["old_2"]
    assert [each["block"] for each in found["messages"]] == ["SHARED_MEMORY"]


async def test_what_a_request_brought_has_to_come_again(on_bus: Ctxb) -> None:
    """A build over a history of the request's own is repeated with the request, and not without."""
    past = [{"id": "p1", "role": "HUMAN", "content": "The boat is red."}]
    content = {"current_input": "Which colour?", "context": {"past": past}}
    request = json.dumps({"id": "msg_1", "owner_key": "ana", "content": content})
    async with on_bus.worker():
        sent = await on_bus("send", "--request", "-", "--json", stdin=request)
    build_id = json.loads(sent.stdout)["content"]["build_id"]

    without = await on_bus("replay", build_id)
    assert without.code == Exit.NOT_REPLAYABLE
    assert "brought along what is not kept (past)" in without.stderr
    given = await on_bus("replay", build_id, "--request", "-", stdin=request)
    assert given.code == Exit.OK, given.stderr + given.stdout


async def test_a_build_that_nobody_made_cannot_be_repeated(on_bus: Ctxb) -> None:
    """Without a manifest there is nothing to go by."""
    result = await on_bus("replay", "bld_0")
    assert result.code == Exit.NOT_REPLAYABLE
    assert "no manifest of 'bld_0'" in result.stderr
