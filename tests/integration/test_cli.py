"""Commands over files, in this process."""

import asyncio
import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from service.app import open_builder, open_bus
from service.audit.report_store import BuildReports
from service.cli.exits import Exit
from service.cli.root import app
from service.config.endpoints import StoreSettings
from service.config.load import load_settings
from service.config.settings import Settings
from service.connect import now, open_stores
from service.ports.stores import Archiving
from service.wire.request import BuildRequest
from tests.support import row

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("alone")]

Ctxb = Callable[..., Result]


@pytest.fixture
def ctxb() -> Ctxb:
    """Give a function that runs a command over a SQLite file."""

    def run(*arguments: str, stdin: str = "", store: str = "sqlite:///ctxb.db") -> Result:
        return CliRunner(env={"CTXB_STORE__URL": store}).invoke(app, arguments, input=stdin)

    return run


def test_history_goes_in_and_out(ctxb: Ctxb) -> None:
    """What is imported twice is stored once, and comes out as it went in."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": "Where is my hat?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "in the hall"},
        {"role": "assistant", "content": "In the hall."},
    ]
    instructions = {"role": "system", "content": "Be kind."}
    Path("messages.json").write_text(json.dumps([instructions, *messages]))
    importing = ["history", "import", "messages.json", "--owner", "ana"]
    first = ctxb(*importing)
    assert first.stdout == "4 rows stored, 0 there already\n"
    assert first.stderr == "left out: 1 system message\n"
    assert ctxb(*importing).stdout == "0 rows stored, 4 there already\n"
    out = ctxb("history", "export", "--owner", "ana", "--format", "openai")
    assert json.loads(out.stdout) == messages
    lines = ctxb("history", "export", "--owner", "ana")
    again = ctxb("history", "import", "-", "--owner", "bob", stdin=lines.stdout)
    assert again.stdout == "4 rows stored, 0 there already\n"
    assert ctxb("history", "export", "--owner", "bob").stdout == lines.stdout
    shown = ctxb("history", "show", "--owner", "ana", "--limit", "1", "--json")
    assert [row["content"] for row in json.loads(shown.stdout)] == ["In the hall."]
    assert "Where is my hat?" in ctxb("history", "show", "--owner", "ana").stdout
    built = ctxb("build", "--owner", "ana", "--input", "Thanks")
    assert "Human: Where is my hat?" in built.stdout


def test_rows_are_pruned_and_restored_by_hand(ctxb: Ctxb) -> None:
    """A pruned row is in no context, is counted as pruned, and comes back whole."""
    rows = [{"id": f"m{n}", "role": "HUMAN", "content": f"said {n}"} for n in range(3)]
    Path("h.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ctxb("history", "import", "h.jsonl", "--owner", "ana")
    whole = ctxb("history", "export", "--owner", "ana").stdout

    pruned = ctxb("history", "prune", "ana", "m1", "m7", "m1")
    assert pruned.stdout == "1 row pruned, 1 pruned already or unknown\n"
    built = ctxb("build", "--owner", "ana", "--input", "Thanks").stdout
    assert "said 0" in built
    assert "said 1" not in built
    counted = json.loads(ctxb("history", "stats", "ana", "--json").stdout)
    assert (counted["rows"], counted["pruned"], counted["archived"]) == (2, 1, 0)
    assert "pruned" in ctxb("history", "stats", "ana").stdout

    restored = ctxb("history", "restore", "ana", "m1")
    assert restored.stdout == "1 row restored, 0 restored already or unknown\n"
    assert ctxb("history", "export", "--owner", "ana").stdout == whole


def test_the_archive_is_shown(ctxb: Ctxb) -> None:
    """The last pruned row is first, with the reason, and as JSON with run and build."""
    note = Archiving(
        reasons={"m0": "older", "m1": "memory_limit"}, run_id="run_1", build_id="bld_1"
    )

    settings = Settings(store=StoreSettings(url=SecretStr("sqlite:///ctxb.db")))

    async def fill() -> None:
        async with open_stores(settings) as stores:
            rows = [{"id": f"m{n}", "role": "HUMAN", "content": f"said {n}"} for n in range(2)]
            await stores.history.append("ana", rows)
            await stores.history.flag_fallen("ana", ["m0", "m1"], archiving=note)

    asyncio.run(fill())
    shown = ctxb("history", "archive", "ana").stdout
    assert "memory_limit" in shown
    assert shown.index("said 1") < shown.index("said 0")
    (newest,) = json.loads(ctxb("history", "archive", "ana", "--limit", "1", "--json").stdout)
    assert newest["row"]["content"] == "said 1"
    assert (newest["reason"], newest["run_id"], newest["build_id"]) == (
        "memory_limit",
        "run_1",
        "bld_1",
    )
    assert datetime.fromisoformat(newest["at"]).tzinfo is not None


def test_a_bad_file_is_stored_as_a_whole_or_not_at_all(ctxb: Ctxb) -> None:
    """A bad line keeps the rest of its file out, unless bad lines are to be skipped."""
    Path("h.jsonl").write_text('{"role": "HUMAN", "content": "a"}\n{"role": 3}\n')
    refused = ctxb("history", "import", "h.jsonl", "--owner", "ana")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "line 2: role: 3 cannot be used" in refused.stderr
    assert ctxb("history", "export", "--owner", "ana").stdout == ""
    skipped = ctxb("history", "import", "h.jsonl", "--owner", "ana", "--skip-bad")
    assert skipped.stdout == "1 row stored, 0 there already\n"


def test_the_schema_is_brought_up_to_date(ctxb: Ctxb) -> None:
    """There is no revision before an upgrade, and the newest after; a second changes nothing."""
    assert ctxb("db", "current").stdout == "none\n"
    upgraded = ctxb("db", "upgrade")
    revision = upgraded.stdout.split()[0]
    assert upgraded.stdout == f"{revision} (was empty)\n"
    assert ctxb("db", "upgrade").stdout == f"{revision} (no change)\n"
    assert ctxb("db", "current").stdout == f"{revision}\n"
    missing = ctxb("db", "upgrade", store="sqlite:///missing/ctxb.db")
    assert missing.exit_code == 5


@pytest.mark.parametrize("content", ["full", "redacted"])
def test_builds_are_compared_by_their_ids(
    ctxb: Ctxb, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """By their reports on the bus, with the lines that differ where the reports have texts."""
    monkeypatch.setenv("CTXB_BUS__URL", redis_url)
    monkeypatch.setenv("CTXB_BUS__PREFIX", prefix)
    monkeypatch.setenv("CTXB_HTTP__CONTENT", content)
    a, b = asyncio.run(_reported(load_settings()))

    same = ctxb("diff", a, a)
    assert same.exit_code == Exit.OK, same.stderr
    assert same.stdout.startswith("identical: both send the same messages and tools")

    other = ctxb("diff", a, b, "--text")
    assert other.exit_code == Exit.DIFFERENT
    assert "[SHARED_MEMORY]" in other.stdout
    assert ("Human: Hello" in other.stdout) == (content == "full")
    assert ctxb("diff", a, f"bld_{'0' * 32}").exit_code == Exit.NO_REPORT


async def _reported(settings: Settings) -> list[str]:
    """Build twice as a worker does, and return the ids."""
    ids = []
    async with open_bus(settings) as connected, open_builder(settings) as builder:
        reports = BuildReports(connected.bus.reports, settings, now)
        await builder.history.append("ana", [row(1, "human", "Hello"), row(2, "ai", "Hi")])
        for limit in (2, 0):
            content = {"current_input": "My hat?", "context": {"memory_limit": limit}}
            request = {"id": f"msg_{limit}", "owner_key": "ana", "content": content}
            built = await builder.build_or_raise(BuildRequest.model_validate(request))
            await reports.store([built])
            ids.append(built.content.build_id)
    return ids


def test_the_demo_runs_without_a_server(ctxb: Ctxb) -> None:
    """Where no server can be had, the demo does with a bus in memory, says so, and logs nothing."""
    ended = ctxb("demo", "--in-memory")
    assert ended.exit_code == 0, ended.output
    assert ended.stderr == ""
    assert "Bus: in memory, with the worker in this process." in ended.stdout
    assert "The same response, not built again" in ended.stdout


def test_an_upgrade_reports_tables_that_are_not_ours(ctxb: Ctxb) -> None:
    """Also where there is nothing to upgrade: exit code 1, as for a check; 5 is for no database."""
    assert ctxb("db", "upgrade").exit_code == Exit.OK
    with closing(sqlite3.connect("ctxb.db")) as database, database:
        database.execute("DROP TABLE summaries")

    for command in ("upgrade", "check"):
        reported = ctxb("db", command)
        assert reported.exit_code == Exit.FAILED
        assert "add table summaries" in reported.stderr

    Path("other.db").write_bytes(b"no database at all" * 100)
    assert ctxb("db", "upgrade", store="sqlite:///other.db").exit_code == Exit.UNREACHABLE


def test_a_missing_worker_is_a_case_of_its_own(
    ctxb: Ctxb, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker gives 4 on either way in, no server 5."""
    monkeypatch.setenv("CTXB_BUS__URL", redis_url)
    monkeypatch.setenv("CTXB_BUS__PREFIX", prefix)
    arguments = ["send", "-o", "ana", "-i", "Hello", "--timeout", "0.2"]
    assert ctxb(*arguments).exit_code == Exit.NO_ANSWER
    channel = ctxb(*arguments, "--via", "channel")
    assert channel.exit_code == Exit.NO_ANSWER
    assert channel.stderr == "error: nobody listens on the request channel\n"

    monkeypatch.setenv("CTXB_HEALTH__PORT", "0")
    monkeypatch.setenv("CTXB_BUS__URL", "redis://127.0.0.1:1/0")
    for command in (arguments, ["worker"]):
        nothing = ctxb(*command)
        assert nothing.exit_code == Exit.UNREACHABLE
        assert "Traceback" not in nothing.stderr


def test_a_port_that_is_taken_stops_the_start(ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 3, and a sentence that names the setting."""
    monkeypatch.setenv("CTXB_BUS__URL", "memory://")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setenv("CTXB_HEALTH__PORT", port)
        ended = ctxb("worker")

    assert ended.exit_code == Exit.CONFIGURATION
    assert f"health.port: can't listen on port {port} of 127.0.0.1" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_strangers_are_not_served_without_a_token(
    ctxb: Ctxb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker doesn't start, with 3 and the name of the setting."""
    monkeypatch.setenv("CTXB_BUS__URL", "memory://")
    monkeypatch.setenv("CTXB_HTTP__HOST", "0.0.0.0")  # noqa: S104
    monkeypatch.setenv("CTXB_HTTP__PORT", "0")
    monkeypatch.setenv("CTXB_HEALTH__PORT", "0")
    ended = ctxb("worker")

    assert ended.exit_code == Exit.CONFIGURATION
    assert "http.token" in ended.stderr
    assert "Traceback" not in ended.stderr
